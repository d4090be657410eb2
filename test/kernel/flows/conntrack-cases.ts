/**
 * Which connection tracking entries go with a change, and which stay: the cases of upstream's conntrack cleaner (reference
 * sync.md §13.2, its table), and where this program differs (docs/differences.md). Written from the reference, not from the code.
 */
import {
  addressesOf,
  FAMILIES,
  type Family,
  PROTOCOLS,
  type ServiceSpec,
  servingPods,
  TERMINATING,
  UNREADY,
} from "./cluster-objects.ts";

/** An address of the node, and one of another machine, whose ports have the same numbers. */
export const OWN: Readonly<Record<Family, string>> = { IPv4: "192.0.2.10", IPv6: "2001:db8:a::10" };
const FOREIGN: Readonly<Record<Family, string>> = { IPv4: "192.0.2.78", IPv6: "2001:db8:a::78" };
const OTHER: Readonly<Record<Family, string>> = { IPv4: "198.51.100.200", IPv6: "2001:db8:51::200" };
const TARGET = { UDP: 5353, SCTP: 3868, TCP: 8080 } as const;

/** `unless away`: it stays if the change was made while no process was running, except in modes whose rules tell what they were. */
export type Fate = "goes" | "stays" | "goes unless away";

export interface Entry {
  readonly fate: Fate;
  readonly family: Family;
  readonly protocol: "TCP" | "UDP" | "SCTP";
  readonly asked: readonly [address: string, port: number];
  readonly answering: readonly [address: string, port: number];
  readonly zone?: number;
}

export interface Case {
  readonly what: string;
  /** Undefined: there is no such Service. */
  readonly before: ServiceSpec | undefined;
  readonly after: ServiceSpec | undefined;
  readonly entries: readonly Entry[];
}

type Place = "cluster IP" | "cluster IP, port 81" | "external IP" | "load balancer" | "node port" | "foreign host";
type Pod = keyof typeof servingPods;
type Spec = Pick<ServiceSpec, "endpoints" | "spec">;

const EVERYWHERE: readonly Place[] = ["cluster IP", "external IP", "load balancer", "node port"];
const ADDRESSES: readonly Place[] = EVERYWHERE.slice(0, 3);

/** A Service's tracked entries: `[places, what answers, fate]`. */
type Tracked = readonly [
  places: readonly Place[],
  answering: Pod | "itself" | "other port",
  fate: Fate,
  more?: Partial<Entry>,
];

function askedAt(number: number, place: Place, family: Family): readonly [address: string, port: number] {
  const own = addressesOf(number);
  if (place === "node port") return [OWN[family], own.nodePort];
  if (place === "foreign host") return [FOREIGN[family], own.nodePort];
  if (place === "cluster IP, port 81") return [own["cluster IP"][family], 81];
  return [own[place][family], 80];
}

function caseOf(
  number: number,
  what: string,
  before: Spec | undefined,
  after: Spec | undefined,
  tracked: readonly Tracked[],
): Case {
  const service = (spec: Spec | undefined) => spec && { name: `case-${number}`, number, ...spec };
  const entries = tracked.flatMap(([places, by, fate, more]) =>
    FAMILIES.flatMap((family) =>
      places.map((place): Entry => {
        const protocol = more?.protocol ?? "UDP";
        const asked = askedAt(number, place, family);
        const pod = servingPods[by === "itself" || by === "other port" ? "local-1" : by];
        const port = by === "other port" ? 9999 : TARGET[protocol];
        const answering = by === "itself" ? asked : ([family === "IPv4" ? pod.ipv4 : pod.ipv6, port] as const);
        return { fate, family, protocol, asked, answering, ...more };
      }),
    ),
  );
  return { what, before: service(before), after: service(after), entries };
}

const both: Spec = { endpoints: ["local-1", "remote-1"] };
const first: Spec = { endpoints: ["local-1"] };
const none: Spec = { endpoints: [] };
const udp = { name: "udp", protocol: "UDP", port: 80, targetPort: 5353 } as const;

const SCTP_CASES: readonly Case[] = PROTOCOLS.includes("SCTP")
  ? [
      caseOf(
        30,
        "SCTP: an endpoint is gone, one does not serve",
        { endpoints: ["local-1", "local-2", "remote-1"] },
        { endpoints: ["local-1", { pod: "local-2", conditions: UNREADY }] },
        [
          [EVERYWHERE, "remote-1", "goes", { protocol: "SCTP" }],
          [EVERYWHERE, "local-2", "stays", { protocol: "SCTP" }],
        ],
      ),
    ]
  : [];

export const CASES: readonly Case[] = [
  caseOf(1, "an endpoint serves; another is gone", both, first, [
    [EVERYWHERE, "local-1", "stays"],
    [EVERYWHERE, "remote-1", "goes"],
  ]),
  caseOf(
    2,
    "an endpoint does not serve any more",
    both,
    { endpoints: ["local-1", { pod: "remote-1", conditions: UNREADY }] },
    [[EVERYWHERE, "remote-1", "goes"]],
  ),
  caseOf(
    3,
    "an endpoint terminates and serves",
    both,
    { endpoints: ["local-1", { pod: "remote-1", conditions: TERMINATING }] },
    [[EVERYWHERE, "remote-1", "stays"]],
  ),
  caseOf(
    4,
    "a policy leaves an endpoint out",
    both,
    { ...both, spec: { internalTrafficPolicy: "Local", externalTrafficPolicy: "Local" } },
    [[EVERYWHERE, "remote-1", "stays"]],
  ),
  caseOf(5, "no endpoint is left", first, none, [
    [EVERYWHERE, "local-1", "goes"],
    // Upstream knows a node port only by its number, and deletes neither.
    [["foreign host"], "local-1", "stays"],
  ]),
  caseOf(6, "the target port is another one", both, both, [[EVERYWHERE, "other port", "goes"]]),
  caseOf(7, "it was not led while there was no endpoint", none, first, [[ADDRESSES, "itself", "goes"]]),
  caseOf(8, "a port that no Service has", both, first, [[["cluster IP, port 81"], "remote-1", "stays"]]),
  caseOf(9, "TCP: the endpoint is gone", both, first, [[EVERYWHERE, "remote-1", "stays", { protocol: "TCP" }]]),
  caseOf(10, "the Service is deleted", first, undefined, [
    [EVERYWHERE, "local-1", "goes unless away"],
    [["foreign host"], "local-1", "stays"],
    [["node port"], "itself", "stays"],
  ]),
  caseOf(
    11,
    "the Service becomes headless",
    first,
    { ...first, spec: { type: "ClusterIP", clusterIP: "None", clusterIPs: ["None"], externalIPs: [], ports: [udp] } },
    [[["cluster IP", "external IP", "node port"], "local-1", "goes unless away"]],
  ),
  caseOf(12, "an external IP is given up", first, { ...first, spec: { externalIPs: [] } }, [
    [["external IP"], "local-1", "goes unless away"],
    [["cluster IP", "load balancer", "node port"], "local-1", "stays"],
  ]),
  caseOf(13, "a port is another one", first, { ...first, spec: { ports: [{ ...udp, port: 81, nodePort: 30099 }] } }, [
    [EVERYWHERE, "local-1", "goes unless away"],
  ]),
  caseOf(14, "a foreign host has the number of a node port", both, first, [[["foreign host"], "remote-1", "stays"]]),
  caseOf(15, "a zone of another program", both, first, [[["cluster IP"], "remote-1", "stays", { zone: 5 }]]),
  // Case 16 ends with what case 17 started with.
  caseOf(
    16,
    "an address is taken over",
    first,
    { ...first, spec: { externalIPs: FAMILIES.map((family) => addressesOf(17)["external IP"][family]) } },
    [],
  ),
  // Those to an endpoint of both may stay, or go in the moment between.
  caseOf(17, "the Service whose address another has now is deleted", both, undefined, [
    [["external IP"], "remote-1", "goes"],
  ]),
  {
    ...caseOf(18, "addresses of no Service", both, first, []),
    entries: FAMILIES.map((family) => ({
      ...{ fate: "stays", family, protocol: "UDP", asked: [OTHER[family], 80] },
      answering: [family === "IPv4" ? servingPods["remote-1"].ipv4 : servingPods["remote-1"].ipv6, 5353],
    })),
  },
  ...SCTP_CASES,
];
