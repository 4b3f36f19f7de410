"""The client against a director that simulates; go test ./client/python starts one and runs this."""

import http.server
import os
import ssl
import threading
import unittest

from director_client import Client, DirectorError, Unreachable, file_sha256

URL, CA = os.environ["DIRECTOR_URL"], os.environ["DIRECTOR_CA_FILE"]
UPGRADE = os.environ["DIRECTOR_UPGRADE"]


def read(name):
    with open(os.environ[name], encoding="utf-8") as f:
        return f.read()


class Simulated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        session = Client(URL, ca_file=CA).login({"user": "admin", "password": read("DIRECTOR_PASSWORD_FILE").strip()})
        cls.token = session["token"]
        cls.client = Client(URL, token=cls.token, ca_file=CA)

    def test_a_cluster_from_its_documents_to_its_nodes(self):
        client = self.client
        documents = read("DIRECTOR_DOCUMENTS")
        tried = client.apply(documents, dry_run=True)
        self.assertTrue(tried["dry_run"])
        self.assertEqual(client.list_clusters()["items"], [])
        client.apply(documents, idempotency_key="one")
        again = client.apply(documents)
        self.assertEqual({c["action"] for c in again["changes"]}, {"unchanged"})
        plan = client.make_plan("demo", {})
        self.assertEqual((plan["operation"], plan["status"]), ("cluster.create", "planned"))
        self.assertEqual(plan["steps"], [])
        self.assertGreater(plan["steps_total"], 0)
        client.start_plan(plan["id"], {"hash": plan["hash"]})
        done = client.wait_for_plan(plan["id"], timeout=300, every=0.1)
        self.assertEqual(done["status"], "done", done)
        nodes = client.list_all_nodes(role=["master"], limit=10)["items"]
        self.assertEqual([n["cluster"] for n in nodes], ["demo"])
        self.assertEqual(client.make_plan("demo", {})["steps_total"], 0)

    def test_problems_say_what_is_wrong(self):
        with self.assertRaises(DirectorError) as caught:
            self.client.get_plan("no/such plan?")
        self.assertEqual((caught.exception.kind, caught.exception.status), ("not_found", 404))
        with self.assertRaises(DirectorError) as caught:
            self.client.apply("apiVersion: kaas/v1\nkind: Network\nmetadata: {name: A}\nspec: {}\n")
        self.assertEqual(caught.exception.kind, "invalid")
        self.assertIn("spec.provider", str(caught.exception))
        with self.assertRaises(DirectorError) as caught:
            Client(URL, token="wrong", ca_file=CA).summary()
        self.assertEqual(caught.exception.kind, "unauthenticated")
        self.assertNotIn(self.token, str(caught.exception))

    def test_only_the_right_director_is_spoken_to(self):
        with self.assertRaises(Unreachable) as caught:
            Client(URL, token=self.token).summary()  # the system does not trust its authority
        self.assertIn("certificate verify failed", str(caught.exception))
        with self.assertRaises(Unreachable):
            Client("https://127.0.0.1:1", ca_file=CA).summary()
        for url in ("http://127.0.0.1", "https://ann:secret@127.0.0.1", "127.0.0.1", "file:///etc/passwd"):
            with self.assertRaises(ValueError):
                Client(url)
        with self.assertRaises(ValueError):
            Client(URL, token="a\r\nX-Evil: 1")

    def test_a_redirect_is_not_followed(self):
        asked = []

        class Elsewhere(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(302)
                self.send_header("Location", "https://" + self.headers["Host"] + "/elsewhere")
                self.end_headers()

            def log_message(self, *args):
                pass

        state = os.path.dirname(CA)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(state, "server.crt"), os.path.join(state, "server.key"))
        with http.server.HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            with self.assertRaises(DirectorError) as caught:
                Client(f"https://127.0.0.1:{server.server_address[1]}", token=self.token, ca_file=CA).summary()
            server.shutdown()
            thread.join()
        self.assertEqual((caught.exception.status, asked), (302, ["/api/v1/summary"]))


class Appliance(unittest.TestCase):
    def test_an_upgrade_of_the_director_is_a_task(self):
        session = Client(URL, ca_file=CA).login({"user": "admin", "password": read("DIRECTOR_PASSWORD_FILE").strip()})
        client = Client(URL, token=session["token"], ca_file=CA)
        sent = client.send_file(UPGRADE, "release")
        self.assertEqual(sent["id"], file_sha256(UPGRADE))
        self.assertEqual(client.send_file(UPGRADE, "release"), sent)  # once
        request = {"task_id": "up7", "phase": "director", "upgrade": {"upload": sent["id"], "within": 60}}
        task = client.ask_phase(request)
        self.assertEqual(client.ask_phase(request), task)
        task = client.wait_for_phase("up7", timeout=60, every=0.1)
        self.assertEqual((task["state"], task["progress"]["to"]), ("done", "v7"), task)
        with self.assertRaises(DirectorError) as caught:
            client.ask_phase({**request, "task_id": "up8", "upgrade": {"upload": "0" * 64}})
        self.assertEqual(caught.exception.kind, "not_found")


if __name__ == "__main__":
    unittest.main()
