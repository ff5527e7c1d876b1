"""The local proxies that other tests lean on do what those tests believe."""

from __future__ import annotations

import base64
import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.proxies import LocalProxy, closed_port


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = repr(sorted(self.headers.keys())).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "a=1")
        self.send_header("Set-Cookie", "b=2")
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def origin():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def client(proxy: LocalProxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)


def get(connection: http.client.HTTPConnection, url: str, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    connection.request("GET", url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode("latin-1")).decode()


def test_plain_requests_are_forwarded_and_counted(origin) -> None:
    """One client connection carries several requests; credentials stop at the proxy, bodies and cookies pass."""
    with LocalProxy() as proxy:
        connection = client(proxy)
        for path in ("a", "chunked"):
            status, body, headers = get(connection, f"http://{origin}/{path}", Proxy_Authorization=basic("u", "p"))
            assert status == 200
            assert "Proxy-Authorization" not in body
            assert headers.get_all("Set-Cookie") == ["a=1", "b=2"]
        connection.request("POST", f"http://{origin}/x", body=b"hello")
        assert connection.getresponse().read() == b"hello"
        connection.close()
        assert proxy.connections == 1
        assert proxy.requests_to(origin) == proxy.connections_to[origin] == 3
        assert proxy.seen[0].proxy_authorization == basic("u", "p")
        assert proxy.seen[2].proxy_authorization is None
        assert proxy.most_in_flight == 1


def test_tunnels_are_opened_and_counted(origin) -> None:
    """CONNECT gives a connection to the origin itself."""
    with LocalProxy(credentials=("user", "p@ss:é")) as proxy:
        assert proxy.url == f"http://user:p%40ss%3A%C3%A9@127.0.0.1:{proxy.port}"
        connection = client(proxy)
        connection.set_tunnel(origin, headers={"Proxy-Authorization": basic("user", "p@ss:é")})
        for _ in range(2):
            assert get(connection, "/a")[0] == 200
        connection.close()
        assert [each.method for each in proxy.seen] == ["CONNECT"]
        assert proxy.connections_to == {origin: 1}


@pytest.mark.parametrize(
    ("options", "status", "header"),
    [
        ({"credentials": ("user", "pw")}, 407, "Proxy-Authenticate"),
        ({"always_407": True}, 407, "Proxy-Authenticate"),
        ({"own_status": 502}, 502, "Proxy-Status"),
        ({"own_status": 503}, 503, "Proxy-Status"),
    ],
)
def test_a_proxy_answers_for_itself(origin, options, status, header) -> None:
    """407 and gateway errors come from the proxy, for plain requests and tunnels, and the origin sees nothing."""
    with LocalProxy(**options) as proxy:
        connection = client(proxy)
        answered, _, headers = get(connection, f"http://{origin}/", Proxy_Authorization=basic("user", "wrong"))
        assert answered == status
        assert header in headers
        connection.close()
        tunnel = client(proxy)
        tunnel.set_tunnel(origin)
        with pytest.raises(OSError, match=str(status)):
            tunnel.request("GET", "/")
        assert not proxy.connections_to
        assert [each.status for each in proxy.seen] == [status, status]


def test_an_unsigned_error_does_not_tell_whose_it_is(origin) -> None:
    """signed=False gives the bare 502 that nobody can tell from the origin's."""
    with LocalProxy(own_status=502, signed=False) as proxy:
        connection = client(proxy)
        assert "Proxy-Status" not in get(connection, f"http://{origin}/")[2]
        connection.close()


def test_a_target_that_is_down_is_a_gateway_error() -> None:
    """The proxy says 502 for an origin that refuses it."""
    with closed_port() as nobody, LocalProxy() as proxy:
        connection = client(proxy)
        assert get(connection, f"{nobody}/")[0] == 502
        connection.close()


def test_a_proxy_dies_and_comes_back(origin) -> None:
    """After so many connections the next is reset, then the port is closed, until it listens again."""
    with LocalProxy(dies_after=2) as proxy:
        for _ in range(2):
            connection = client(proxy)
            assert get(connection, f"http://{origin}/")[0] == 200
            connection.close()
        for _ in range(2):
            with pytest.raises((OSError, http.client.HTTPException)):
                get(client(proxy), f"http://{origin}/")
        proxy.revive()
        connection = client(proxy)
        assert get(connection, f"http://{origin}/")[0] == 200
        proxy.die()
        with pytest.raises((OSError, http.client.HTTPException)):
            get(connection, f"http://{origin}/")
        with pytest.raises(ConnectionRefusedError):
            get(client(proxy), f"http://{origin}/")


def test_a_closed_port_refuses() -> None:
    """closed_port gives an address where every connection is refused."""
    with closed_port() as url, pytest.raises(ConnectionRefusedError):
        get(http.client.HTTPConnection(url.removeprefix("http://"), timeout=10), "http://x.example/")


def test_a_slow_proxy_is_slow(origin) -> None:
    """delay holds an answer back, and what waits is in flight."""
    with LocalProxy(delay=0.2) as proxy:
        started = time.monotonic()
        connections = [client(proxy) for _ in range(3)]
        for connection in connections:
            connection.request("GET", f"http://{origin}/")
        assert [connection.getresponse().status for connection in connections] == [200] * 3
        assert time.monotonic() - started >= 0.2
        assert proxy.most_in_flight == 3
        for connection in connections:
            connection.close()


def test_a_proxy_stops_with_connections_open(origin) -> None:
    """Leaving the with block ends tunnels and waits of clients that never closed."""
    with LocalProxy(delay=60) as slow, LocalProxy() as proxy:
        waiting = client(slow)
        waiting.request("GET", f"http://{origin}/")
        tunnel = client(proxy)
        tunnel.set_tunnel(origin)
        tunnel.connect()
    assert not slow._thread.is_alive()
    assert not proxy._thread.is_alive()
    waiting.close()
    tunnel.close()
