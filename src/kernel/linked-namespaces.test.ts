import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { newRunName } from "../../testkit/net/run-name.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import type { IpAddress } from "../net/ip.ts";
import { namespacesWith, otherNamespaces, outputInterfaces } from "./linked-namespaces.ts";

const ip = (line: string): void => void execFileSync("ip", line.split(" "));

async function make(t: { after(work: () => unknown): void }, ...names: string[]): Promise<NetworkNamespace[]> {
  const made = await NetworkNamespace.createAll(names.map((name) => newRunName(name)));
  t.after(() => NetworkNamespace.removeAll(made));
  return made;
}

inNetns(import.meta.url, { name: "linked-namespaces" }, () => {
  test("an address is looked for here and on devices that links lead to, and not elsewhere", async (t) => {
    const [linked, apart] = await make(t, "linked", "apart");
    assert.ok(linked !== undefined && apart !== undefined);
    ip(`link add here type veth peer name there netns ${linked.name}`);
    await apart.configure(["address add 10.9.9.9/32 dev lo"]);
    await linked.configure(["address add 10.9.9.8/32 dev lo", "address add 10.9.9.9/32 dev there"]);
    assert.deepEqual(await namespacesWith(new Set(["10.9.9.9"])), [linked.path]);
    assert.deepEqual(await namespacesWith(new Set(["10.9.9.8"])), [], "it is on another device");
    ip("address add 10.9.9.9/32 dev lo");
    assert.deepEqual(await namespacesWith(new Set(["10.9.9.9"])), ["/proc/self/ns/net", linked.path]);
    ip("link delete here");
    assert.deepEqual(await namespacesWith(new Set(["10.9.9.9"])), ["/proc/self/ns/net"], "its id outlives the link");
  });

  test("a device is told with what it is connected to here, its addresses, and where the route to them leaves", async (t) => {
    const made = await make(t, "pod", "nested", "lan", "apart");
    const [pod, nested, lan] = made;
    assert.ok(pod !== undefined && nested !== undefined && lan !== undefined);
    ip("link add name br0 type bridge");
    ip(`link add veth1 master br0 type veth peer name eth0 netns ${pod.name}`);
    ip(`link add eth1 type veth peer name peer netns ${made[3]?.name}`);
    ip(`link add link eth1 name net1 netns ${lan.name} type macvlan mode bridge`);
    ip("address add 10.8.0.1/24 dev br0");
    for (const device of ["br0", "veth1", "eth1"]) ip(`link set ${device} up`);
    await pod.configure([
      `link add v0 type veth peer name eth0 netns ${nested.name}`,
      "address add 10.8.0.2/24 dev eth0",
      "address add 10.8.9.1/24 dev v0",
    ]);
    await lan.configure(["address add 10.7.0.2/24 dev net1"]);
    const found = new Map((await otherNamespaces()).map(({ path, devices }) => [path, devices]));
    const seen = (namespace: NetworkNamespace) =>
      found
        .get(namespace.path)
        ?.map(({ here, addresses }) => [
          ...here.map(({ name }) => name),
          ...addresses.filter((one) => one.includes(".")),
        ]);
    assert.deepEqual(seen(pod), [["veth1", "br0", "10.8.0.2"]]);
    assert.deepEqual(seen(nested), [], "it is connected to the pod alone");
    assert.deepEqual(seen(lan), [["eth1", "10.7.0.2"]], "macvlan, by its lower device");
    const [toPod, nowhere] = ["10.8.0.2", "10.6.0.1"] as IpAddress[];
    assert.ok(toPod !== undefined && nowhere !== undefined);
    const routes = await outputInterfaces([nowhere, toPod]);
    assert.deepEqual([...routes.keys()], [toPod]);
    assert.equal(routes.get(toPod), found.get(pod.path)?.[0]?.here[1]?.index);
  });
});
