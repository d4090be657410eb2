import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { type Facts, silentLogger } from "../../logging/logger.ts";
import { SocketMaps } from "./socket-maps.ts";
import { SocketNews } from "./socket-news.ts";

const FACTS = { nodeName: "node-a", zone: undefined };

test("at -v 9, each service port that changes in the maps is logged with its frontends and endpoints, and at -v 8 none", () => {
  for (const verbosity of [8, 9]) {
    const lines: Facts[] = [];
    const log = {
      ...silentLogger,
      isVerbose: (level: number) => level <= verbosity,
      v: (level: number, message: string, facts: Facts = {}) => void lines.push({ level, message, ...facts }),
    };
    const news = new SocketNews(log);
    const maps = new SocketMaps(
      { bpf: memoryBpf(), family: "IPv4", onMoved: () => {}, nowMs: () => 0 },
      { services: 2, endpoints: 3 },
    );
    const [web, dns] = [port("web", "10.96.0.1"), port("dns", "10.96.0.2", { protocol: "UDP", port: 53 })];
    const keys = [web.name.key, dns.name.key];
    const write = (change: () => void) => {
      const tell = news.noteWrites(maps, () => keys);
      change();
      maps.settle();
      tell();
      return lines.splice(0);
    };
    const line = (servicePort: string, ...frontends: readonly string[]) =>
      verbosity < 9 ? [] : [{ level: 9, message: "Writing eBPF maps", servicePort, frontends }];
    const set = (...endpoints: readonly string[]) => {
      maps.set(
        web.name.key,
        web,
        endpoints.map((ip) => remote(ip)),
        FACTS,
      );
      maps.set(dns.name.key, dns, [remote("10.180.1.9")], FACTS);
    };
    assert.deepEqual(
      write(() => set("10.180.1.1", "10.180.1.2")),
      [
        ...line(web.name.key, "TCP 10.96.0.1 80 cluster 10.180.1.1 8080, 10.180.1.2 8080"),
        ...line(dns.name.key, "UDP 10.96.0.2 53 cluster 10.180.1.9 8080"),
      ],
    );
    assert.deepEqual(
      write(() => set("10.180.1.2", "10.180.1.1")),
      [],
      "nothing changes",
    );
    assert.deepEqual(
      write(() => set("10.180.1.3")),
      line(web.name.key, "TCP 10.96.0.1 80 cluster 10.180.1.3 8080"),
    );
    assert.deepEqual(
      write(() => maps.release(web.name.key, undefined)),
      line(web.name.key),
      "deleted",
    );
  }
});
