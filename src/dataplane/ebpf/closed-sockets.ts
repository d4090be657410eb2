/**
 * Removes the records of UDP sockets that were closed, or connected to something else, while no program saw it. The kernel does not list
 * an open socket that was disconnected, either: that has no port, gets no answers, and new records once it connects or sends
 * (reference ebpf-operation.md §5.6).
 */
import type { Clock } from "../../async/clock.ts";
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import { takeNumber, takeWide } from "../../kernel/bpf/layout.ts";
import { CONNECTED_KEY, CONNECTED_VALUE, UDP_FLOW, UDP_FLOW_KEY } from "../../kernel/bpf/socket-balancer/maps.ts";
import type { UdpPeers } from "../../kernel/sock-diag/client-sockets.ts";
import type { Logger } from "../../logging/logger.ts";
import { type IpFamily, ipFromBytes, joinHostPort } from "../../net/ip.ts";
import { countFlows, ledIn, type NamespaceMaps } from "./pod-namespaces.ts";
import type { StaleConnections } from "./stale-connections.ts";

interface ClosedSocketsOptions {
  readonly family: IpFamily;
  readonly maps: () => NamespaceMaps & { readonly connected: BpfMap };
  readonly peers: (family: IpFamily) => Promise<UdpPeers>;
  /** Has the cookie of the host's network namespace. */
  readonly identity: () => { readonly owner: bigint };
  /** Told when sockets got their records back: they may have lost their endpoint meanwhile. */
  readonly stale: Pick<StaleConnections, "disconnect">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Records of a socket that are true or not as a whole. */
interface Records {
  readonly cookie: bigint;
  readonly netns: bigint;
  /** What the socket is connected to if they are true. @default anything, or nothing */
  readonly peer?: string;
  readonly map: BpfMap;
  readonly elements: readonly (readonly [key: Uint8Array, value: Uint8Array])[];
}

const SECOND_LOOK_MS = 60_000;
/** A socket that was about to connect when its records were removed is listed by then. */
const THIRD_LOOK_MS = 1000;

export class ClosedSockets {
  readonly #options: ClosedSocketsOptions;
  #stop = new AbortController();

  constructor(options: ClosedSocketsOptions) {
    this.#options = options;
  }

  /** Call after a time without programs. Never throws. */
  async look(): Promise<void> {
    this.close();
    const { clock, log } = this.#options;
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    try {
      const first = new Set((await this.#untrue()).map(textOf));
      if (first.size === 0) return;
      await clock.sleep(SECOND_LOOK_MS, signal);
      if (signal.aborted) return;
      const second = (await this.#untrue()).filter((records) => first.has(textOf(records)));
      if (signal.aborted || second.length === 0) return;
      const taken = second.map(take);
      this.#countFlows(taken);
      log.v(1, "Removed records of UDP sockets that were closed while no program was attached", {
        sockets: taken.length,
      });
      await clock.sleep(THIRD_LOOK_MS, signal);
      if (!signal.aborted) await this.#putBack(taken, signal);
    } catch (error) {
      if (!signal.aborted)
        log.error("Looking for UDP sockets that were closed while no program was attached failed", error);
    }
  }

  /** The records stay as they are. */
  close(): void {
    this.#stop.abort();
  }

  /** What is recorded but no longer so, as far as sockets can be seen. */
  async #untrue(): Promise<readonly Records[]> {
    const { family, peers, identity } = this.#options;
    const records = this.#read();
    if (records.length === 0) return [];
    const seen = await peers(family);
    const { owner } = identity();
    return records.filter((one) => (seen.isOfAll || one.netns === owner) && !isTrue(one, seen));
  }

  #read(): readonly Records[] {
    const { family, maps } = this.#options;
    const { connected, flows } = maps();
    const { address, port, netns } = CONNECTED_VALUE[family].fields;
    const ofConnected = connected.entries().map(([key, value]) => ({
      cookie: takeWide(key, CONNECTED_KEY.fields.cookie),
      netns: takeWide(value, netns),
      peer: joinHostPort(ipFromBytes(value.slice(address.at, address.at + address.bytes)), takeNumber(value, port)),
      map: connected,
      elements: [[key, value] as const],
    }));
    const bySocket = Map.groupBy(flows.entries(), ([key]) => takeWide(key, UDP_FLOW_KEY.fields.cookie));
    const ofFlows = Array.from(bySocket, ([cookie, elements]) => ({
      cookie,
      netns: takeWide(elements[0]?.[1] ?? new Uint8Array(UDP_FLOW[family].size), UDP_FLOW[family].fields.netns),
      map: flows,
      // Programs look for them from the first number to the last.
      elements: elements.toSorted(([one], [other]) => Buffer.compare(one, other)),
    }));
    return [...ofConnected, ...ofFlows];
  }

  async #putBack(taken: readonly Records[], signal: AbortSignal): Promise<void> {
    const { family, peers, stale } = this.#options;
    const seen = await peers(family);
    if (signal.aborted) return;
    const back = taken.filter((records) => isTrue(records, seen));
    for (const { map, elements } of back) for (const [key, value] of elements) map.add(key, value);
    this.#countFlows(back);
    if (back.length > 0) await stale.disconnect();
  }

  #countFlows(changed: readonly Records[]): void {
    const { family, maps } = this.#options;
    countFlows(maps(), family, new Set(changed.map(({ netns }) => netns)).intersection(ledIn(maps())));
  }
}

const isTrue = ({ cookie, peer }: Records, { peers }: UdpPeers): boolean =>
  peer === undefined ? peers.has(cookie) : peers.get(cookie) === peer;

/** Equal for two looks only if no program has written them in between. */
const textOf = ({ elements }: Records): string => Buffer.concat(elements.flat()).toString("latin1");

/** Deletes them. @returns them as they were then. */
function take(records: Records): Records {
  const { map, elements } = records;
  const taken = elements.flatMap(([key]) => {
    const value = map.take(key);
    return value === undefined ? [] : [[key, value] as const];
  });
  return { ...records, elements: taken };
}
