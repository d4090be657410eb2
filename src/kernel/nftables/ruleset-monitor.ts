/**
 * Watches other programs' changes to the rulesets of the network namespace, and reports to each table's owner those of its table.
 *
 * The kernel sends a notification for each object of a commit, and then one for the commit itself with its generation and process; a filter
 * drops those of our own commits (`notification-filter.ts`). If the generation has advanced by our commits plus the announced ones, no
 * notification of another program's commit is still under way.
 */

import { forEachAttribute, zstring } from "../netlink/attributes.ts";
import { NETLINK_NETFILTER } from "../netlink/constants.ts";
import type { Reply } from "../netlink/frames.ts";
import { NFNL_SUBSYS_NFTABLES, nfnetlinkPayload, readNfnetlink } from "../netlink/nfnetlink.ts";
import { Listeners, subscribe } from "../netlink/subscription.ts";
import { processOfThread } from "../process-of-thread.ts";
import { ChainLog } from "./chain-log.ts";
import type { ChainHistory, NftForeignChange, NftMark } from "./nftables.ts";
import { type NftKind, operationOfType } from "./wire/batch.ts";
import * as nft from "./wire/constants.ts";
import type { NftablesClient } from "./wire/nftables-client.ts";
import { generation as generationCodec } from "./wire/objects.ts";

/** How long notifications may lag behind a generation that was read. */
const CATCH_UP_MS = 250;
const CATCH_UP_STEP_MS = 2;
/** Anonymous sets, which come and go with their rules, start with it. None of our named sets does, but a renamed chain may. */
const ANONYMOUS = "_";
const NOTHING: ReadonlySet<string> = new Set();

interface WatchedTable {
  readonly nfproto: number;
  readonly table: string;
}

/** Other programs' changes to a table in the commit whose notifications are arriving. */
interface Touched {
  readonly chains: Set<string>;
  readonly sets: Set<string>;
  readonly defined: Set<string>;
  isTotal: boolean;
}

interface Watcher extends WatchedTable {
  readonly onChange: (change: NftForeignChange) => void;
  /** Since this generation, no change of other programs was missed. Undefined: not known yet. */
  since: number | undefined;
  /** Undefined if nothing was touched. */
  touched: Touched | undefined;
  /** The generation of the last change by another program. */
  touchedAt: number | undefined;
}

interface RulesetMonitorOptions {
  readonly client: Pick<NftablesClient, "generation" | "portId" | "hasPort">;
  /** For notifications. @default that of subscriptions */
  readonly receiveBufferBytes?: number;
  /** @default the kernel's notifications */
  readonly listen?: typeof subscribe;
}

export class RulesetMonitor {
  readonly #options: RulesetMonitorOptions;
  readonly #watchers = new Listeners<Watcher>(() => this.#stop?.abort());
  #stop: AbortController | undefined;
  /** Everything up to this mark is known. */
  #base: NftMark | undefined;
  /** The generations of other programs' commits that were announced since then. */
  #foreign: number[] = [];
  /** Their number when notifications were lost. The kernel silently drops more until the queue has been emptied. */
  #lostAfter: number | undefined;
  readonly chains = new ChainLog();

  constructor(options: RulesetMonitorOptions) {
    this.#options = options;
  }

  /**
   * Reports other programs' changes to the table until the signal aborts, and then resolves. Rejects if notifications cannot
   * be received (any more).
   */
  watch(target: WatchedTable, onChange: Watcher["onChange"], signal: AbortSignal): Promise<void> {
    const watcher: Watcher = { ...target, onChange, since: undefined, touched: undefined, touchedAt: undefined };
    const watching = this.#watchers.join(watcher, signal);
    if (signal.aborted) return watching;
    if (this.#stop?.signal.aborted !== false) this.#start();
    // The first commit may be announced only in part: what is known starts at the generation that is read now.
    this.#begin([watcher]);
    return watching;
  }

  /**
   * Whether no other program has touched the table after generation `since`, up to `until`. False if that is not known,
   * because the table is not watched or notifications were lost.
   */
  async isUntouched({ nfproto, table }: WatchedTable, since: number, until: NftMark): Promise<boolean> {
    const watcher = [...this.#watchers].find((one) => one.nfproto === nfproto && one.table === table);
    if (watcher === undefined || !(await this.#isAnnounced(until)) || watcher.since === undefined) return false;
    const { since: knownSince, touchedAt = since } = watcher;
    return distance(since, knownSince) >= 0 && distance(since, touchedAt) >= 0;
  }

  /** What was seen of base chains up to this mark, before which all our own commits have ended. */
  async chainHistory(until: NftMark): Promise<ChainHistory | undefined> {
    if (this.#watchers.size === 0 || !(await this.#isAnnounced(until))) return undefined;
    if (!this.chains.isKnown) this.chains.begin(until.generation);
    return this.chains.history(until.generation);
  }

  #start(): void {
    const stop = new AbortController();
    this.#stop = stop;
    this.#base = undefined;
    this.#foreign = [];
    this.#lostAfter = undefined;
    this.chains.forget();
    const { client, receiveBufferBytes, listen = subscribe } = this.#options;
    listen({
      protocol: NETLINK_NETFILTER,
      groups: [nft.NFNLGRP_NFTABLES],
      onMessage: (reply) => this.#onMessage(reply),
      ownPort: () => client.portId,
      onOverrun: () => {
        this.#lostAfter ??= this.#foreign.length;
        this.chains.forget();
      },
      rest: () => {
        if (this.#lostAfter !== undefined) this.#recover(this.#lostAfter);
        return undefined;
      },
      signal: stop.signal,
      ...(receiveBufferBytes === undefined ? {} : { receiveBufferBytes }),
    }).catch((error: unknown) => this.#fail(stop.signal, error));
  }

  #fail({ aborted }: AbortSignal, error: unknown): void {
    if (!aborted) this.#watchers.fail(error);
  }

  /** From the current generation on, these watchers miss nothing. */
  #begin(watchers: readonly Watcher[]): void {
    for (const watcher of watchers) watcher.since = undefined;
    this.#look((now) => {
      if (this.#base === undefined) this.#settle(now);
      for (const watcher of watchers) watcher.since = now.generation;
    });
  }

  /** After a loss: either all missing notifications were of our commits, or anything may have changed until now. */
  #recover(lostAfter: number): void {
    const base = this.#base;
    this.#lostAfter = undefined;
    this.#base = undefined;
    this.chains.forget();
    this.#look((now) => {
      // Commits of other programs that were announced since the loss may have been announced only in part.
      const isHarmless =
        base !== undefined &&
        this.#foreign.length === lostAfter &&
        distance(now.generation, base.generation) === now.commits - base.commits + lostAfter;
      this.#settle(now);
      for (const watcher of isHarmless ? [] : this.#watchers) {
        watcher.since = now.generation;
        touchedIn(watcher).isTotal = true;
        report(watcher, now.generation, undefined);
      }
    });
  }

  #look(onMark: (now: NftMark) => void): void {
    const signal = this.#stop?.signal;
    if (signal === undefined) return;
    this.#options.client
      .generation()
      .then(({ id: generation = 0, commits }) => signal.aborted || onMark({ generation, commits }))
      .catch((error: unknown) => this.#fail(signal, error));
  }

  /** Records that everything up to this mark is known. */
  #settle(base: NftMark): void {
    this.#base = base;
    this.#foreign = this.#foreign.filter((id) => distance(id, base.generation) > 0);
    if (!this.chains.isKnown) this.chains.begin(base.generation);
  }

  #onMessage(reply: Reply): void {
    if (reply.type >> 8 !== NFNL_SUBSYS_NFTABLES || this.#options.client.hasPort(reply.portId)) return;
    if ((reply.type & 0xff) === nft.NFT_MSG_NEWGEN) {
      const { id = 0, processId: pid, processName: name } = readNfnetlink(reply, generationCodec);
      // An earlier generation is already covered by the mark.
      if (this.#base === undefined || distance(id, this.#base.generation) > 0) this.#foreign.push(id);
      this.chains.committed(id);
      const thread = pid === undefined || name === undefined ? undefined : { pid, name };
      for (const watcher of this.#watchers) report(watcher, id, thread);
    } else {
      this.chains.note(reply);
      const object = announcedObject(reply);
      for (const watcher of this.#watchers) {
        if (object.family === watcher.nfproto && object.table === watcher.table) note(watcher, object);
      }
    }
  }

  /** Waits briefly until all other programs' commits up to the mark have been announced. @returns whether they have. */
  async #isAnnounced(until: NftMark): Promise<boolean> {
    for (const endMs = performance.now() + CATCH_UP_MS; ; ) {
      const base = this.#lostAfter === undefined ? this.#base : undefined;
      if (base !== undefined) {
        const commits = distance(until.generation, base.generation);
        if (commits <= 0) return true;
        const announced = this.#foreign.filter((id) => distance(id, until.generation) <= 0).length;
        if (commits <= until.commits - base.commits + announced) break;
      }
      if (performance.now() > endMs) {
        if (base === undefined) return false;
        // The notification may never come: start over from here.
        this.chains.forget();
        this.#base = undefined;
        this.#begin([...this.#watchers]);
        return false;
      }
      await new Promise((resolve) => setTimeout(resolve, CATCH_UP_STEP_MS));
    }
    this.#settle(until);
    return true;
  }
}

/** The number of generations from `b` to `a`; they wrap at 2^32. */
function distance(a: number, b: number): number {
  return (a - b) | 0;
}

function touchedIn(watcher: Watcher): Touched {
  watcher.touched ??= { chains: new Set(), sets: new Set(), defined: new Set(), isTotal: false };
  return watcher.touched;
}

function note(watcher: Watcher, { kind, name, isDefinition }: Announcement): void {
  if (kind === "table") touchedIn(watcher).isTotal = true;
  if ((kind !== "chain" && kind !== "set") || name === undefined) return;
  if (kind === "set" && name.startsWith(ANONYMOUS)) return;
  const { chains, sets, defined } = touchedIn(watcher);
  (kind === "chain" ? chains : sets).add(name);
  if (isDefinition) defined.add(name);
}

/** Reports what a commit has changed in the table, if anything: other programs often commit to their own tables. */
function report(watcher: Watcher, generation: number, thread: NftForeignChange["by"]): void {
  const { touched } = watcher;
  if (touched === undefined) return;
  watcher.touched = undefined;
  watcher.touchedAt = generation;
  // Everything in the table may have changed: too much to list.
  const all = { chains: NOTHING, sets: NOTHING, defined: NOTHING, isTotal: true };
  const by = thread && processOfThread(thread);
  watcher.onChange({ ...(touched.isTotal ? all : touched), generation, by });
}

/** The notification of one object that a commit added or deleted. */
interface Announcement {
  readonly family: number;
  readonly table: string | undefined;
  /** A rule counts as a change of its chain, and an element as a change of its set. */
  readonly kind: "table" | "chain" | "set" | "other";
  /** The name of the chain or set. */
  readonly name: string | undefined;
  /** Whether the chain or set itself was added or redefined. */
  readonly isDefinition: boolean;
}

/** NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, …: all have the same number. */
const TABLE = 1;
/** What changes, and the attribute with its name. */
const SUBJECTS: Partial<Readonly<Record<NftKind, readonly [kind: Announcement["kind"], nameAttribute: number]>>> = {
  ...{ table: ["table", TABLE], chain: ["chain", 3], rule: ["chain", 2] },
  ...{ set: ["set", 2], elements: ["set", 2] },
};

/** Reads only what identifies the changed object. Throws `malformed`. */
function announcedObject(reply: Reply): Announcement {
  const { verb, kind: changed = "counter" } = operationOfType(reply.type) ?? {};
  const [kind, nameAttribute] = SUBJECTS[changed] ?? (["other", 0] as const);
  const { family, input, start, end } = nfnetlinkPayload(reply);
  let table: string | undefined;
  let name: string | undefined;
  forEachAttribute(input, start, end, (type, from, to) => {
    if (type === TABLE) table = zstring.read(input, from, to);
    else if (type === nameAttribute) name = zstring.read(input, from, to);
  });
  const isDefinition = verb === "add" && (changed === "chain" || changed === "set");
  return { family, table, kind, name, isDefinition };
}
