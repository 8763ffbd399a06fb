#!/usr/bin/python3
"""How an endpoint is told who we are: Basic, Bearer, a header, OAuth2 tokens, client certificates."""
import base64
import http.server
import json
import pathlib
import ssl
import subprocess
import threading
import unittest
import urllib.parse

from harness import ARRIVE_S, Customer, SystemTest, wait_until


def make_certificates(folder):
    """A CA, a receiver's certificate for 127.0.0.1 and two clients' ones, by openssl."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
            "-subj", "/CN=CA", "-days", "2")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "one", "two"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out",
                f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-out", f"{name}.pem", "-days", "2", "-extfile", "san")


class TlsReceiver:
    """Asks for a client certificate, and notes whose came with what on which connection."""

    def __init__(self, folder):
        self.seen = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                subject = dict(pair[0] for pair in self.connection.getpeercert()["subject"])
                outer.seen.append((self.path, subject["commonName"], self.client_address, body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True,
                                                 do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class AuthTest(SystemTest):
    @classmethod
    def begin(cls, world):
        world.serve()

    def setUp(self):
        self.begin_anew()

    def begin_anew(self):
        self.tenant = self.unique("t")
        self.customer = Customer(self.world, (self.tenant,))
        self.path = "/" + self.unique("hook")

    def delivered(self, count=1):
        self.world.settle()
        self.world.publish(self.events(1, self.tenant))
        return wait_until("a delivery", ARRIVE_S,
                          lambda: len(self.world.receiver.got(self.path)) >= count
                          and self.world.receiver.got(self.path))

    def header(self, delivery, name):
        return {key.lower(): value for key, value in delivery.headers.items()}.get(name)

    def test_sends_basic_bearer_and_header_credentials_and_never_shows_them(self):
        basic = "Basic " + base64.b64encode(b"user:s3cr:et").decode()
        for auth, name, value in (
                ({"kind": "basic", "username": "user", "password": "s3cr:et"}, "authorization", basic),
                ({"kind": "bearer", "token": "s3cret.t"}, "authorization", "Bearer s3cret.t"),
                ({"kind": "header", "name": "x-api-key", "value": "s3cret v"}, "x-api-key",
                 "s3cret v")):
            self.begin_anew()
            endpoint = self.customer.endpoint(self.path, auth=auth)
            self.assertNotIn("s3cr", json.dumps(endpoint))
            self.assertEqual(self.header(self.delivered()[0], name), value)
            shown = self.customer.ok("GET", f"/v1/endpoints/{endpoint['id']}")
            self.assertEqual(shown["auth"]["kind"], auth["kind"])
            self.assertNotIn("s3cr", json.dumps(shown))
        self.assertFalse(any("s3cr" in role.log_text() for role in self.world.services))

    def test_fetches_a_token_and_another_when_the_receiver_refuses_it(self):
        asked = []
        tokens = iter(("first", "second", "third"))
        token_path = "/" + self.unique("token")

        def give(handler, delivery):
            asked.append(delivery)
            handler.answer(200, (), json.dumps({
                "access_token": next(tokens), "token_type": "Bearer",
                "expires_in": 3600}).encode())

        def refuse_the_first(handler, delivery):
            refused = self.header(delivery, "authorization") == "Bearer first"
            handler.answer(401 if refused and len(self.world.receiver.got(self.path)) > 1 else 200)

        self.world.receiver.answer(token_path, give)
        self.world.receiver.answer(self.path, refuse_the_first)
        self.customer.endpoint(self.path, retry={"first_delay_ms": 100}, auth={
            "kind": "oauth2", "client_id": "client", "client_secret": "s3cret",
            "token_url": self.world.receiver.url + token_path, "scope": "a b"})
        self.assertEqual(self.header(self.delivered()[0], "authorization"), "Bearer first")
        self.assertEqual(urllib.parse.parse_qs(asked[0].body.decode()),
                         {"grant_type": ["client_credentials"], "scope": ["a b"]})
        self.assertEqual(self.header(asked[0], "authorization"),
                         "Basic " + base64.b64encode(b"client:s3cret").decode())
        got = self.delivered(3)
        self.assertEqual([self.header(one, "authorization") for one in got],
                         ["Bearer first", "Bearer first", "Bearer second"])
        self.assertEqual(len(asked), 2)

    def test_two_customers_on_one_host_show_their_own_certificates(self):
        folder = pathlib.Path(self.world.dir) / "certificates"
        folder.mkdir()
        make_certificates(folder)
        receiver = TlsReceiver(folder)
        self.addCleanup(receiver.close)
        text = lambda name: (folder / name).read_text()
        for name in ("one", "two"):
            Customer(self.world, (self.tenant,)).endpoint(
                url=receiver.url + "/" + name,
                tls={"ca_pem": text("ca.pem"), "certificate_pem": text(f"{name}.pem"),
                     "key_pem": text(f"{name}.key")})
        self.world.settle()
        for count in (2, 4, 6):
            self.world.publish(self.events(1, self.tenant))
            wait_until("both have it", ARRIVE_S, lambda: len(receiver.seen) >= count)
        connections = {}
        for path, client, connection, _ in receiver.seen:
            self.assertEqual(path, "/" + client)
            connections.setdefault(connection, set()).add(client)
        self.assertTrue(all(len(clients) == 1 for clients in connections.values()), connections)
        self.assertLess(len(connections), len(receiver.seen), "connections are kept")


if __name__ == "__main__":
    unittest.main()
