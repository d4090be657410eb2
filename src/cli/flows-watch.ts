/** Connections of this node as they are, and as they begin and end. */
import type { AnsweringPlace, FlowNamer, NamedFlow, NamedPort } from "../explain/flows.ts";
import type { ConntrackTable, FlowFilter, LedFlow, TrackedFlow } from "../kernel/conntrack/conntrack.ts";
import type { followFlows } from "../kernel/conntrack/netlink-conntrack.ts";
import { messageOf } from "../logging/message-of.ts";
import { familyOf, IP_FAMILIES, type IpAddress } from "../net/ip.ts";

/** Where flows come from; tests give others. */
export interface FlowSource {
  readonly open: () => Pick<ConntrackTable, "readFlows"> & AsyncDisposable;
  readonly follow: typeof followFlows;
  readonly ownAddresses: () => Promise<ReadonlySet<IpAddress>>;
}

/** What is known of the cluster and the mode, now. */
export interface Asked {
  readonly namer: () => Promise<FlowNamer>;
  /** What connection tracking does not know, or not whole. */
  readonly led: () => Promise<readonly LedFlow[]>;
}

/** Prints flows, or carries them away. */
export interface FlowTaker {
  readonly tell: (flow: NamedFlow) => void;
  readonly close: () => Promise<void>;
}

/** One that may have had enough. */
export interface FlowSink extends FlowTaker {
  readonly isFull: boolean;
}

/** More frontends are not asked for one by one: the table is read once. */
const SINGLE_DUMPS = 8;
/** How often a daemon is asked which Services there are now, and how often it is looked for what no message tells of. */
const TIMES = { refreshMs: 5_000, lookMs: 1_000 };
/** A process may take up a connection after the kernel has told of it: its endpoint is looked for this often. */
const LOOKS_FOR_ENDPOINT = 10;
/** Beginnings that are remembered, for ages. */
const MOST_REMEMBERED = 1_000_000;

/** What there is now. */
export async function listFlows(namer: FlowNamer, asked: Asked, source: FlowSource, sink: FlowSink): Promise<void> {
  const tell = (flow: TrackedFlow): void => {
    const named = sink.isFull ? undefined : namer.name(flow, { nowMs: Date.now() });
    if (named !== undefined) sink.tell(named);
  };
  await using table = source.open();
  for (const flow of namer.takeLed(await asked.led())) tell(flow);
  await readAll(table, namer, tell);
}

/** Each once, also where the kernel says that its table changed meanwhile. */
async function readAll(
  table: Pick<ConntrackTable, "readFlows">,
  namer: FlowNamer,
  visit: (flow: TrackedFlow) => void,
): Promise<void> {
  // A port of the node may have the number of a Service's port: one filter lets through what another has.
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

/** The kernel looks through its table once for each, and gives what fits. */
function filtersFor(namer: FlowNamer): readonly FlowFilter[] {
  const filters = namer.frontends.map(({ protocol, address, port }) => ({
    ...{ protocol, port },
    ...(address !== undefined && { address }),
  }));
  return filters.length <= SINGLE_DUMPS ? filters : [{}];
}

/** A connection that is looked for, as it was seen last. */
interface Seen {
  readonly flow: LedFlow;
  readonly startMs: number | undefined;
}

interface Begun {
  readonly startMs: number;
  readonly port: NamedPort;
}

/** Tells beginnings and ends until the sink is full, or its signal aborts. */
export class FlowWatch {
  readonly #asked: Asked;
  readonly #source: FlowSource;
  readonly #sink: FlowSink;
  readonly #note: (text: string) => void;
  readonly #times: typeof TIMES;
  readonly #stop = new AbortController();
  #namer: FlowNamer;
  /** When connections of conntrack's began, and of which service port, which may be gone when they end; by id. */
  readonly #begun = new Map<number, Begun>();
  /** What was in the table when the watch began has not begun since, by id. */
  readonly #old = new Set<number>();
  /** Endpoints of those that a process carries, by id: when they end, it has forgotten them. */
  readonly #carried = new Map<number, AnsweringPlace>();
  /** Those that have begun, and whose endpoint is looked for, by id. */
  readonly #waiting = new Map<number, { readonly flow: TrackedFlow; looks: number }>();
  /** Undefined before the first look: what is there already has not begun now. */
  #seen: Map<string, Seen> | undefined;
  /** Told from the table, after messages were lost: their own messages may come yet. */
  readonly #told = new Set<number>();
  #oldRead: Promise<void> | undefined;
  #lost = 0;
  #hasComplained = false;

  constructor(
    namer: FlowNamer,
    asked: Asked,
    source: FlowSource,
    sink: FlowSink,
    note: (text: string) => void,
    times = TIMES,
  ) {
    this.#namer = namer;
    this.#asked = asked;
    this.#source = source;
    this.#sink = sink;
    this.#note = note;
    this.#times = times;
  }

  async run(ended: AbortSignal = this.#stop.signal): Promise<void> {
    const following = this.#source.follow({
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
    const looking = setInterval(look, this.#times.lookMs);
    const refreshing = setInterval(() => {
      this.#asked.namer().then(
        (namer) => {
          this.#namer = namer;
        },
        // The daemon is starting again, perhaps: what was known stays true until it answers.
        () => {},
      );
    }, this.#times.refreshMs);
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
      await using table = this.#source.open();
      await readAll(table, this.#namer, ({ id }) => {
        if (id !== undefined && !this.#begun.has(id) && this.#old.size < MOST_REMEMBERED) this.#old.add(id);
      });
    } catch (error) {
      this.#note(
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
    const named = this.#sink.isFull
      ? undefined
      : this.#namer.name(flow, { nowMs: Date.now(), startMs, port, hasEnded, answering });
    if (named !== undefined) this.#sink.tell(named);
    if (this.#sink.isFull) this.#stop.abort();
  }

  /** @param isLast whether it is not looked for again. */
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

  /** What is at the socket, and what a process carries, no message tells of. */
  async #look(): Promise<void> {
    // The answer knows those that had begun when it was asked for; later ones wait for the next.
    const waiting = [...this.#waiting.keys()];
    try {
      const led = await this.#asked.led();
      // Asked for the namer afterwards: it may be another one meanwhile.
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
      if (!this.#hasComplained) this.#note(`what the daemon leads itself is not told: ${messageOf(error)}`);
      this.#hasComplained = true;
    }
  }

  /** Tells of beginnings that were missed. Ends that were missed are lost. */
  async #rebuild(): Promise<void> {
    const live = new Set<number>();
    let missed = 0;
    this.#told.clear();
    try {
      await this.#oldRead;
      await using table = this.#source.open();
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
      this.#note(`the kernel lost messages ${this.#lost} times; ${missed} connections are told from its table.`);
    } catch (error) {
      this.#note(`the kernel lost messages, and its table cannot be read: ${messageOf(error)}`);
    } finally {
      this.#lost = 0;
    }
  }
}
