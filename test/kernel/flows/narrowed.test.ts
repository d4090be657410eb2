/** A daemon configured to serve less: node ports on listed addresses only, no external IPs, no node port on localhost. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { bareAddress, type DualAddress, nodeA } from "../../../testkit/net/topology-spec.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { differenceFrom } from "./asking.ts";
import { addressesOf, FAMILIES, type ServiceSpec, type ServingPod } from "./cluster-objects.ts";
import { answersOf, type Expected, type Position } from "./expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, type Mode, protocolsOf, traitsOf } from "./modes.ts";

const service: ServiceSpec = {
  name: "narrowed",
  number: 1,
  endpoints: ["local-1", "remote-1"],
  spec: { externalTrafficPolicy: "Local", healthCheckNodePort: 32001 },
};
/** Further addresses of the node, one in the list and one not. */
const listed: DualAddress = { ipv4: "10.201.0.5/32", ipv6: "fd00:201::5/128" };
const unlisted: DualAddress = { ipv4: "10.202.0.5/32", ipv6: "fd00:202::5/128" };
const nodePortAddresses = ["10.200.0.0/24", "10.201.0.0/24", "fd00:200::/64", "fd00:201::/64"];

/** The Local policy applies to external clients; with virtual servers, to every client. */
function podsFor(mode: Mode, from: Position): readonly ServingPod[] {
  const { hasVirtualServers = false } = traitsOf[mode];
  const isLocalOnly = hasVirtualServers || from === "off-node client";
  return isLocalOnly ? ["local-1"] : ["local-1", "remote-1"];
}

/** Asserts what a client gets at the node port of one of the node's addresses. */
async function expectNodePort(
  mode: Mode,
  { probers }: FlowNetwork,
  from: Position,
  at: DualAddress,
  wanted: "served" | "refused",
): Promise<void> {
  const { nodePort: port } = addressesOf(service.number);
  for (const family of FAMILIES) {
    const address = bareAddress(family === "IPv4" ? at.ipv4 : at.ipv6);
    const pods = podsFor(mode, from);
    // What the node sends to one of its own addresses comes from that address.
    const ownPeers = new Map(pods.map((pod): [ServingPod, string] => [pod, address]));
    const expected: Expected =
      wanted === "refused"
        ? { kind: "refused" }
        : from === "node" && traitsOf[mode].hasVirtualServers === true
          ? { kind: "answers", peers: ownPeers }
          : answersOf(pods, from !== "node" && !traitsOf[mode].carriesTraffic, from, family);
    for (const protocol of protocolsOf(mode)) {
      const difference = await differenceFrom(expected, probers[from], {
        protocol,
        address,
        port,
      });
      assert.equal(difference, undefined, `${from} to ${address} ${protocol}: ${difference}`);
    }
  }
}

async function externalIPs(mode: Mode, { probers }: FlowNetwork): Promise<void> {
  const outside = "off-node client";
  const cells = FAMILIES.flatMap((family) =>
    protocolsOf(mode).flatMap((protocol) => [
      differenceFrom(
        { kind: "nothing" },
        probers["off-node client"],
        addressOf(service.number, "external IP", protocol, family),
      ),
      differenceFrom(
        answersOf(podsFor(mode, outside), !traitsOf[mode].carriesTraffic, outside, family),
        probers["off-node client"],
        addressOf(service.number, "load balancer", protocol, family),
      ),
    ]),
  );
  assert.deepEqual(
    (await Promise.all(cells)).filter((line) => line !== undefined),
    [],
  );
}

async function healthCheckPort({ probers }: FlowNetwork): Promise<void> {
  for (const [{ ipv4, ipv6 }, status] of [
    [nodeA.lan, 200],
    [unlisted, 0],
  ] as const) {
    for (const host of [bareAddress(ipv4), `[${bareAddress(ipv6)}]`]) {
      const answer = await probers["off-node client"].fetch(`http://${host}:32001/`, 8000);
      assert.equal(answer.status, status, `${host}: ${answer.body}`);
    }
  }
}

for (const mode of ALL_MODES) {
  test(`${mode}: narrowed by configuration`, { skip: kernelSkip, concurrency: true }, async (t) => {
    const network = await flowNetwork(t, mode, [service], {
      config: { nodePortAddresses, featureGates: { AllowServiceExternalIPs: false } },
      async prepare(topology) {
        const addresses = [listed, unlisted].flatMap(({ ipv4, ipv6 }) => [
          // Not on eth0, where masquerading might choose them.
          `addr add ${ipv4} dev lo`,
          `addr add ${ipv6} dev lo nodad`,
        ]);
        await topology.namespace(nodeA.name).configure(addresses);
      },
    });
    await Promise.all([
      t.test("node ports answer on every listed address of the node", async () => {
        await Promise.all(
          [nodeA.lan, listed].flatMap((at) =>
            (["off-node client", "pod", "node"] as const).map((from) =>
              expectNodePort(mode, network, from, at, "served"),
            ),
          ),
        );
      }),
      t.test("node ports do not answer on other addresses, localhost included", async () => {
        await Promise.all([
          expectNodePort(mode, network, "off-node client", unlisted, "refused"),
          expectNodePort(mode, network, "pod", nodeA.bridge, "refused"),
          expectNodePort(mode, network, "node", { ipv4: "127.0.0.1", ipv6: "::1" }, "refused"),
        ]);
      }),
      t.test("with the gate off external IPs are not served, and load balancers are", () => externalIPs(mode, network)),
      t.test("the health-check node port listens where node ports do", () => healthCheckPort(network)),
    ]);
  });
}
