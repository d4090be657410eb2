/**
 * Removes the records of UDP sockets that were closed, or connected to something else, while no program saw it. The kernel does not list
 * an open socket that was disconnected, either: that has no port, gets no answers, and new records once it connects or sends
 * (reference ebpf-operation.md §5.6).
 */
import type { Clock } from "../../async/clock.ts";
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import { takeNumber, takeWide, u64 } from "../../kernel/bpf/layout.ts";
import type { UdpPeers } from "../../kernel/sock-diag/client-sockets.ts";
import type { Logger } from "../../logging/logger.ts";
import { type IpFamily, ipFromBytes, joinHostPort } from "../../net/ip.ts";
import { countFlows, ledIn, type NamespaceMaps } from "./pod-namespaces.ts";
import { CONNECTED_VALUE, UDP_FLOW } from "./socket-balancer/maps.ts";
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

interface Recorded {
  readonly map: BpfMap;
  readonly key: Uint8Array;
  readonly value: Uint8Array;
}

/** Keys begin with it. */
const COOKIE = u64(0);
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
      const first = await this.#untrue();
      if (first.size === 0) return;
      await clock.sleep(SECOND_LOOK_MS, signal);
      if (signal.aborted) return;
      const second = await this.#untrue();
      if (signal.aborted) return;
      // No program has written them in between.
      const same = [...second].filter(([text]) => first.has(text));
      const taken = same.flatMap(([, records]) => records.flatMap(take));
      if (taken.length === 0) return;
      this.#countFlows();
      log.v(1, "Removed records of UDP sockets that were closed while no program was attached", {
        sockets: same.length,
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

  /** What is recorded but no longer so, as far as sockets can be seen: the records of each socket, by their content. */
  async #untrue(): Promise<ReadonlyMap<string, readonly Recorded[]>> {
    const { family, maps, peers } = this.#options;
    const { connected, flows } = maps();
    const all = [connected, flows].flatMap((map) => map.entries().map(([key, value]) => ({ map, key, value })));
    if (all.length === 0) return new Map();
    const seen = await peers(family);
    const untrue = all.filter((one) => this.#isTrue(one, seen) === false);
    // Programs look for flows from the first number to the last.
    const inOrder = untrue.toSorted((one, other) => Buffer.compare(one.key, other.key));
    const bySocket = Map.groupBy(inOrder, ({ key }) => takeWide(key, COOKIE));
    return new Map(Array.from(bySocket.values(), (records) => [textOf(records), records]));
  }

  /** Undefined if the socket's network namespace cannot be seen. */
  #isTrue({ map, key, value }: Recorded, { peers, isOfAll }: UdpPeers): boolean | undefined {
    const { family, maps, identity } = this.#options;
    const isOfFlow = map === maps().flows;
    const { netns } = (isOfFlow ? UDP_FLOW : CONNECTED_VALUE)[family].fields;
    if (!isOfAll && takeWide(value, netns) !== identity().owner) return undefined;
    const peer = peers.get(takeWide(key, COOKIE));
    if (isOfFlow) return peer !== undefined;
    const { address, port } = CONNECTED_VALUE[family].fields;
    const endpoint = ipFromBytes(value.slice(address.at, address.at + address.bytes));
    return peer === joinHostPort(endpoint, takeNumber(value, port));
  }

  async #putBack(taken: readonly Recorded[], signal: AbortSignal): Promise<void> {
    const { family, peers, stale } = this.#options;
    const seen = await peers(family);
    const back = signal.aborted ? [] : taken.filter((one) => this.#isTrue(one, seen));
    if (back.length === 0) return;
    for (const { map, key, value } of back) map.add(key, value);
    this.#countFlows();
    await stale.disconnect();
  }

  #countFlows(): void {
    const maps = this.#options.maps();
    countFlows(maps, this.#options.family, ledIn(maps));
  }
}

const textOf = (records: readonly Recorded[]): string =>
  Buffer.concat(records.flatMap(({ key, value }) => [key, value])).toString("latin1");

/** Deletes it. @returns it as it was then. */
function take({ map, key }: Recorded): readonly Recorded[] {
  const value = map.take(key);
  return value === undefined ? [] : [{ map, key, value }];
}
