import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { IpAddress } from "../../net/ip.ts";
import type { Destination } from "../../relay/relay.ts";
import { Balancer, STICKY_CLIENT_LIMIT } from "./balancer.ts";

const ONE_CLIENT = "192.0.2.1" as IpAddress;

function endpoints(...lastOctets: number[]): Destination[] {
  return lastOctets.map((octet) => ({ address: `10.0.0.${octet}` as IpAddress, port: 80 }));
}

function setUp() {
  const time = { nowMs: 0 };
  const balancer = new Balancer({ random: () => 0.5, nowMs: () => time.nowMs });
  const pick = (client: string = ONE_CLIENT, isRetry = false) =>
    balancer.pick("web", { address: client as IpAddress, port: 1 }, isRetry)?.address;
  return { balancer, pick, time };
}

const manyPicks = (pick: () => string | undefined, count: number) => Array.from({ length: count }, () => pick());

describe("the round-robin balancer", () => {
  it("has no endpoint to pick for an unknown service and for one without endpoints", () => {
    const { balancer, pick } = setUp();
    assert.equal(pick(), undefined);
    balancer.set("web", [], undefined);
    assert.equal(pick(), undefined);
    balancer.set("web", endpoints(1), undefined);
    balancer.set("web", [], undefined);
    assert.equal(pick(), undefined);
  });

  it("goes round in an order that chance decides", () => {
    const orders = new Set<string>();
    for (const chance of [0, 0.4, 0.9]) {
      const balancer = new Balancer({ random: () => chance, nowMs: () => 0 });
      balancer.set("web", endpoints(1, 2, 3), undefined);
      const picks = manyPicks(() => balancer.pick("web", { address: ONE_CLIENT, port: 1 }, false)?.address, 6);
      assert.deepEqual(picks.slice(3), picks.slice(0, 3));
      assert.equal(new Set(picks).size, 3);
      orders.add(picks.join());
    }
    assert.ok(orders.size > 1);
  });

  it("goes on where it was when the same endpoints come in another order", () => {
    const { balancer, pick } = setUp();
    balancer.set("web", endpoints(1, 2, 3), undefined);
    const first = pick();
    balancer.set("web", endpoints(3, 1, 2), undefined);
    assert.equal(new Set([first, pick(), pick()]).size, 3);
  });
});

describe("ClientIP affinity", () => {
  it("keeps a client at its endpoint, and the time begins again with each connection", () => {
    const { balancer, pick, time } = setUp();
    balancer.set("web", endpoints(1, 2), { timeoutSeconds: 10 });
    const first = pick();
    time.nowMs = 9_999;
    assert.equal(pick(), first);
    time.nowMs = 19_998;
    assert.equal(pick(), first);
    time.nowMs = 29_998;
    assert.notEqual(pick(), first);
  });

  it("moves a client for good when its endpoint could not be reached", () => {
    const { balancer, pick } = setUp();
    balancer.set("web", endpoints(1, 2), { timeoutSeconds: 10 });
    const first = pick();
    const second = pick(ONE_CLIENT, true);
    assert.notEqual(second, first);
    assert.equal(pick(), second);
  });

  it("survives an update that leaves the client's endpoint, and ends with the endpoint", () => {
    const { balancer, pick } = setUp();
    balancer.set("web", endpoints(1, 2, 3), { timeoutSeconds: 10 });
    const first = pick();
    const others = endpoints(1, 2, 3).filter(({ address }) => address !== first);
    balancer.set("web", endpoints(1, 2, 3, 4), { timeoutSeconds: 10 });
    assert.equal(pick(), first);
    balancer.set("web", others, { timeoutSeconds: 10 });
    assert.notEqual(pick(), first);
    balancer.set("web", [], { timeoutSeconds: 10 });
    assert.equal(balancer.stickyClients, 0);
  });

  it("follows a change of nothing but the timeout (userspace.md §1.7)", () => {
    const { balancer, pick, time } = setUp();
    balancer.set("web", endpoints(1, 2), { timeoutSeconds: 10 });
    const first = pick();
    balancer.set("web", endpoints(1, 2), { timeoutSeconds: 60 });
    time.nowMs = 59_999;
    assert.equal(pick(), first);
  });

  it("lasts three hours when the Service names no time", () => {
    const { balancer, pick, time } = setUp();
    balancer.set("web", endpoints(1, 2), { timeoutSeconds: 0 });
    const first = pick();
    time.nowMs = 10_799_999;
    assert.equal(pick(), first);
  });

  it("is forgotten with the Service (userspace.md §1.7)", () => {
    const { balancer, pick } = setUp();
    balancer.set("web", endpoints(1, 2), { timeoutSeconds: 10 });
    const first = pick();
    balancer.delete("web");
    assert.equal(balancer.stickyClients, 0);
    balancer.set("web", endpoints(1, 2), { timeoutSeconds: 10 });
    assert.equal(pick("192.0.2.2"), first, "it begins again");
    assert.notEqual(pick(), first);
  });

  it("remembers a bounded number of clients, those seen last", () => {
    const { balancer, pick } = setUp();
    balancer.set("web", endpoints(1, 2, 3), { timeoutSeconds: 10 });
    const first = pick();
    const second = pick("192.0.2.2");
    pick(); // the first client is now the younger one
    for (let index = 0; index < STICKY_CLIENT_LIMIT - 1; index++) pick(`client ${index}`);
    assert.equal(balancer.stickyClients, STICKY_CLIENT_LIMIT);
    assert.equal(pick(), first);
    // A remembered client would not move.
    assert.notEqual(pick("192.0.2.2"), second);
  });
});

describe("an endpoint that stands several times", () => {
  it("gets as many turns, and its clients stay when it has fewer", () => {
    const { balancer, pick } = setUp();
    balancer.set("web", endpoints(1, 2, 2, 2), undefined);
    const picks = manyPicks(pick, 8);
    assert.equal(picks.filter((address) => address === "10.0.0.2").length, 6);
    balancer.set("web", endpoints(1, 2, 2, 2), { timeoutSeconds: 10 });
    const clients = manyPicks(() => undefined, 8).map((_, index) => `192.0.2.${index + 1}`);
    const before = clients.map((client) => pick(client));
    balancer.set("web", endpoints(1, 2), { timeoutSeconds: 10 });
    assert.deepEqual(
      clients.map((client) => pick(client)),
      before,
    );
    balancer.set("web", endpoints(1), { timeoutSeconds: 10 });
    assert.deepEqual(new Set(clients.map((client) => pick(client))), new Set(["10.0.0.1"]));
  });
});
