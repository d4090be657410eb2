/** Lists the connections of this node, and watches them begin and end. */

import type { ConntrackTable, FlowFilter, LedFlow, TrackedFlow } from "../../kernel/conntrack/conntrack.ts";
import type { followFlows } from "../../kernel/conntrack/netlink-conntrack.ts";
import { messageOf } from "../../logging/message-of.ts";
import { familyOf, IP_FAMILIES, type IpAddress } from "../../net/ip.ts";
import type { AnsweringPlace, FlowNamer, NamedFlow, NamedPort } from "../explain/flows.ts";

/** Where flows come from; tests replace it. */
export interface FlowSource {
  readonly open: () => Pick<ConntrackTable, "readFlows"> & AsyncDisposable;
  readonly follow: typeof followFlows;
  readonly ownAddresses: () => Promise<ReadonlySet<IpAddress>>;
}

/** The current knowledge of the cluster and the mode. */
export interface Asked {
  readonly namer: () => Promise<FlowNamer>;
  /** Flows that connection tracking does not know, or only in part. */
  readonly led: () => Promise<readonly LedFlow[]>;
}

/** Prints or exports flows. */
export interface FlowTaker {
  readonly tell: (flow: NamedFlow) => void;
  readonly close: () => Promise<void>;
}

/** A taker that may be full. */
export interface FlowSink extends FlowTaker {
  readonly isFull: boolean;
}

/** Up to this many frontends are queried one by one; for more, the table is read once. */
const SINGLE_DUMPS = 8;
/** How often to ask the daemon for the current Services, and for connections that no kernel message reports. */
const TIMES = { refreshMs: 5_000, lookMs: 1_000 };
/** How often to look for the endpoint of a connection: a process may accept it after the kernel has reported it. */
const LOOKS_FOR_ENDPOINT = 10;
/** How many beginnings to remember, for ages. */
const MOST_REMEMBERED = 1_000_000;

/** Lists the current connections. */
export async function listFlows(namer: FlowNamer, asked: Asked, source: FlowSource, sink: FlowSink): Promise<void> {
  const tell = (flow: TrackedFlow): void => {
    const named = sink.isFull ? undefined : namer.name(flow, { nowMs: Date.now() });
    if (named !== undefined) sink.tell(named);
  };
  await using table = source.open();
  for (const flow of namer.takeLed(await asked.led())) tell(flow);
  await readAll(table, namer, tell);
}

/** Visits each flow once, even if the kernel says that its table has changed meanwhile. */
async function readAll(
  table: Pick<ConntrackTable, "readFlows">,
  namer: FlowNamer,
  visit: (flow: TrackedFlow) => void,
): Promise<void> {
  // A node port may have the number of a Service's port: then two filters let the same flow through.
  const seen = new Set<number>();
  for (const filter of filtersFor(namer)) {
    for (const family of filter.address === undefined ? IP_FAMILIES : [familyOf(filter.address)]) {
      await table.readFlows(family, filter, () => (flow) => {
        if (namer.portOf(flow) === undefined || (flow.id !== undefined && seen.has(flow.id))) return;
        if (flow.id !== undefined) seen.add(flow.id);
        visit(flow);
      });
    }
  }
}

/** The kernel searches its table once per filter, and returns the matches. */
function filtersFor(namer: FlowNamer): readonly FlowFilter[] {
  const filters = namer.frontends.map(({ protocol, address, port }) => ({
    ...{ protocol, port },
    ...(address !== undefined && { address }),
  }));
  return filters.length <= SINGLE_DUMPS ? filters : [{}];
}

interface Watching {
  readonly asked: Asked;
  readonly source: FlowSource;
  readonly sink: FlowSink;
  readonly note: (text: string) => void;
  /** @default every second, and every five */
  readonly times?: typeof TIMES;
}

/** Reports beginnings and ends until the sink is full or the signal aborts. */
export class FlowWatch {
  readonly #given: Watching;
  readonly #stop = new AbortController();
  #namer: FlowNamer;
  /** By id: when conntrack entries began, and for which service port, which may be gone when they end. */
  readonly #begun = new Map<number, { readonly startMs: number; readonly port: NamedPort }>();
  /** Ids of entries that were in the table before the watch began. */
  readonly #old = new Set<number>();
  /** By id: endpoints of connections that a process carries, which it has forgotten when they end. */
  readonly #carried = new Map<number, AnsweringPlace>();
  /** By id: new connections whose endpoint is not known yet. */
  readonly #waiting = new Map<number, { readonly flow: TrackedFlow; looks: number }>();
  /** Undefined before the first look: connections that exist already have not begun now. */
  #seen: Map<string, { readonly flow: LedFlow; readonly startMs: number | undefined }> | undefined;
  /** Ids reported from the table after messages were lost; their own messages may still come. */
  readonly #told = new Set<number>();
  #oldRead: Promise<void> | undefined;
  #lost = 0;
  #hasComplained = false;

  constructor(namer: FlowNamer, given: Watching) {
    this.#namer = namer;
    this.#given = given;
  }

  async run(ended: AbortSignal = this.#stop.signal): Promise<void> {
    const { source, asked, times = TIMES } = this.#given;
    const following = source.follow({
      onBegin: (flow) => {
        const port = this.#namer.portOf(flow);
        if (port === undefined || this.#told.delete(flow.id ?? -1)) return;
        if (flow.id !== undefined) this.#remember(flow.id, port);
        if (this.#namer.isEndpointTracked || flow.id === undefined) this.#tell(flow);
        else this.#waiting.set(flow.id, { flow, looks: 0 });
      },
      onEnd: (flow) => {
        const id = flow.id ?? -1;
        this.#told.delete(id);
        this.#old.delete(id);
        if (!this.#namer.isEndpointTracked) this.#tellWaiting(id, true);
        this.#tell(flow, this.#begun.get(id), true, this.#carried.get(id));
        this.#begun.delete(id);
        this.#carried.delete(id);
      },
      onLost: () => {
        this.#lost += 1;
        if (this.#lost === 1) void this.#rebuild();
      },
      signal: AbortSignal.any([this.#stop.signal, ended]),
    });
    this.#oldRead = this.#readOld();
    let isLooking = false;
    const look = (): void => {
      if (isLooking) return;
      isLooking = true;
      void this.#look().finally(() => {
        isLooking = false;
      });
    };
    look();
    const looking = setInterval(look, times.lookMs);
    const refreshing = setInterval(() => {
      asked.namer().then(
        (namer) => {
          this.#namer = namer;
        },
        // The daemon may be restarting: what was known stays valid until it answers.
        () => {},
      );
    }, times.refreshMs);
    try {
      await following;
    } finally {
      clearInterval(looking);
      clearInterval(refreshing);
    }
  }

  #remember(id: number, port: NamedPort): void {
    if (this.#begun.size < MOST_REMEMBERED) this.#begun.set(id, { startMs: Date.now(), port });
    this.#old.delete(id);
  }

  async #readOld(): Promise<void> {
    try {
      await using table = this.#given.source.open();
      await readAll(table, this.#namer, ({ id }) => {
        if (id !== undefined && !this.#begun.has(id) && this.#old.size < MOST_REMEMBERED) this.#old.add(id);
      });
    } catch (error) {
      this.#given.note(
        `the table of connections cannot be read; if the kernel loses messages, older connections will appear as new: ${messageOf(error)}`,
      );
    }
  }

  #tell(
    flow: TrackedFlow,
    { startMs, port }: { readonly startMs?: number | undefined; readonly port?: NamedPort } = {},
    hasEnded = false,
    answering?: AnsweringPlace,
  ): void {
    const named = this.#given.sink.isFull
      ? undefined
      : this.#namer.name(flow, { nowMs: Date.now(), startMs, port, hasEnded, answering });
    if (named !== undefined) this.#given.sink.tell(named);
    if (this.#given.sink.isFull) this.#stop.abort();
  }

  /** @param isLast whether this is the last look for its endpoint. */
  #tellWaiting(id: number, isLast: boolean): void {
    const one = this.#waiting.get(id);
    if (one === undefined) return;
    const answering = this.#namer.answering(one.flow);
    one.looks += 1;
    if (answering === undefined && !isLast && one.looks < LOOKS_FOR_ENDPOINT) return;
    this.#waiting.delete(id);
    if (answering !== undefined) this.#carried.set(id, answering);
    this.#tell(one.flow);
  }

  /** Looks for connections led at the socket or carried by a process, which no message reports. */
  async #look(): Promise<void> {
    // The answer covers connections that began before the question; later ones wait for the next.
    const waiting = [...this.#waiting.keys()];
    try {
      const led = await this.#given.asked.led();
      // Uses the namer only now: it may have been replaced meanwhile.
      const flows = this.#namer.takeLed(led);
      this.#hasComplained = false;
      for (const id of waiting) this.#tellWaiting(id, false);
      const before = this.#seen;
      this.#seen = new Map(
        flows.map((flow) => {
          const known = before?.get(flow.socket);
          return [flow.socket, { flow, startMs: before === undefined ? undefined : (known?.startMs ?? Date.now()) }];
        }),
      );
      if (before === undefined) return;
      for (const [socket, { flow, startMs }] of this.#seen) if (!before.has(socket)) this.#tell(flow, { startMs });
      for (const [socket, { flow, startMs }] of before)
        if (!this.#seen.has(socket)) this.#tell(flow, { startMs }, true);
    } catch (error) {
      if (!this.#hasComplained)
        this.#given.note(`connections that the daemon redirects itself cannot be shown: ${messageOf(error)}`);
      this.#hasComplained = true;
    }
  }

  /** Reports beginnings that were missed. Missed ends are lost. */
  async #rebuild(): Promise<void> {
    const live = new Set<number>();
    let missed = 0;
    this.#told.clear();
    try {
      await this.#oldRead;
      await using table = this.#given.source.open();
      await readAll(table, this.#namer, (flow) => {
        if (flow.id === undefined) return;
        live.add(flow.id);
        const port = this.#namer.portOf(flow);
        if (port === undefined || this.#begun.has(flow.id) || this.#old.has(flow.id)) return;
        missed += 1;
        this.#told.add(flow.id);
        this.#remember(flow.id, port);
        this.#tell(flow);
      });
      for (const ids of [this.#begun, this.#old]) for (const id of ids.keys()) if (!live.has(id)) ids.delete(id);
      this.#given.note(
        `the kernel lost messages ${this.#lost === 1 ? "once" : `${this.#lost} times`}; ${missed} ${missed === 1 ? "connection comes" : "connections come"} from its table.`,
      );
    } catch (error) {
      this.#given.note(`the kernel lost messages, and its table cannot be read: ${messageOf(error)}`);
    } finally {
      this.#lost = 0;
    }
  }
}
