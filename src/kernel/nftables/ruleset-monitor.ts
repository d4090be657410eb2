/**
 * Sees every change to the rulesets of the network namespace, and reports to the owners of tables what others did to theirs.
 *
 * The kernel announces each object of a commit, and then the commit itself with its generation and the process behind it;
 * all carry the port id of the socket that sent the commit, which is how ours are recognised. Generations are counted
 * against commits, so that lost announcements (a large commit of our own easily overruns the receive buffer) only matter
 * when another program's may have been among them.
 */

import type { Mutex } from "../../async/mutex.ts";
import { forEachAttribute, zstring } from "../netlink/attributes.ts";
import { NETLINK_NETFILTER } from "../netlink/constants.ts";
import type { Reply } from "../netlink/frames.ts";
import { NFNL_SUBSYS_NFTABLES, nfnetlinkPayload } from "../netlink/nfnetlink.ts";
import { Listeners, subscribe } from "../netlink/subscription.ts";
import type { NftForeignChange } from "./nftables.ts";
import * as nft from "./wire/constants.ts";
import type { NftablesClient } from "./wire/nftables-client.ts";
import { generation as generationCodec } from "./wire/objects.ts";

/** How long announcements may lag behind a generation that was read. */
const CATCH_UP_MS = 250;
const CATCH_UP_STEP_MS = 2;
/** The same after announcements were lost; no commit of ours is sent meanwhile. */
const RECOVERY_MS = 30;
/**
 * After announcements of our own commits others may gather for so long: under a stream of changes a thread would else be woken for
 * each commit, which costs as much as a third of the commit.
 */
const REST_MS = 50;
/** Sets of these names come and go with the rules that use them; none of ours that has a name of its own begins so, but a renamed chain may. */
const ANONYMOUS = "_";
const NOTHING: ReadonlySet<string> = new Set();

/** A table of a family. */
interface WatchedTable {
  readonly nfproto: number;
  readonly table: string;
}

/** What others have changed in a table since the last commit. */
interface Touched {
  readonly chains: Set<string>;
  readonly sets: Set<string>;
  readonly defined: Set<string>;
  isTotal: boolean;
}

interface Watcher extends WatchedTable {
  readonly onChange: (change: NftForeignChange) => void;
  /** From this generation on its table was looked at. Undefined: as long as any. */
  readonly since: number | undefined;
  /** Undefined: nothing. */
  touched: Touched | undefined;
  /** Generation of the last foreign change. */
  touchedAt: number | undefined;
}

interface RulesetMonitorOptions {
  readonly client: Pick<NftablesClient, "generation" | "portId" | "hasPort">;
  /** Held while a commit of ours is under way. */
  readonly commits: Mutex;
  /** Commits of ours so far. */
  readonly committed: () => number;
  /** For announcements. @default that of subscriptions */
  readonly receiveBufferBytes?: number;
  /** @default the kernel's announcements */
  readonly listen?: typeof subscribe;
}

export class RulesetMonitor {
  readonly #options: RulesetMonitorOptions;
  readonly #watchers = new Listeners<Watcher>(() => this.#stop?.abort());
  #stop: AbortController | undefined;
  /** The newest generation that was announced. */
  #seen: number | undefined;
  /** From this generation on nothing of others was missed. */
  #completeSince: number | undefined;
  /** Commits of ours that were announced, and commits of anybody that were not. */
  #ownSeen = 0;
  #missed = 0;
  #isRecovering = false;
  /** Since the recovery under way began: announcements were lost, and others have committed, perhaps announced in part only. */
  #isLost = false;
  #isDoubtful = false;
  /** Since the last rest: announcements of our own commits, and of others. */
  #hasOwn = false;
  #hasForeign = false;
  /** Ends the rest. */
  #wake: (() => void) | undefined;

  constructor(options: RulesetMonitorOptions) {
    this.#options = options;
  }

  /**
   * Tells of foreign changes to the table until the signal aborts, and then resolves. Rejects when notifications cannot be
   * received (any more).
   */
  watch(target: WatchedTable, onChange: Watcher["onChange"], signal: AbortSignal): Promise<void> {
    const isRunning = this.#stop?.signal.aborted === false;
    // A commit may be half announced.
    const since = isRunning && this.#seen !== undefined ? this.#seen + 1 : undefined;
    const watching = this.#watchers.join(
      { ...target, onChange, since, touched: undefined, touchedAt: undefined },
      signal,
    );
    if (!signal.aborted && !isRunning) this.#start();
    return watching;
  }

  /**
   * Whether no other program has touched the table after generation `since`, up to `until`. False when that is not known,
   * because the table is not watched or announcements were lost.
   */
  async isUntouched({ nfproto, table }: WatchedTable, since: number, until: number): Promise<boolean> {
    const watcher = [...this.#watchers].find((one) => one.nfproto === nfproto && one.table === table);
    if (watcher === undefined || !(await this.#announced(until, CATCH_UP_MS)) || this.#isRecovering) return false;
    return (
      this.#completeSince !== undefined &&
      distance(since, this.#completeSince) >= 0 &&
      (watcher.since === undefined || distance(since, watcher.since) >= 0) &&
      (watcher.touchedAt === undefined || distance(since, watcher.touchedAt) >= 0)
    );
  }

  #start(): void {
    const stop = new AbortController();
    this.#stop = stop;
    this.#seen = undefined;
    this.#completeSince = undefined;
    this.#missed = 0;
    this.#isLost = false;
    this.#isDoubtful = false;
    stop.signal.addEventListener("abort", () => this.#wake?.(), { once: true });
    const fail = (error: unknown): void => {
      if (this.#stop === stop) this.#stop = undefined;
      stop.abort();
      this.#watchers.fail(error);
    };
    const { client, commits, committed, receiveBufferBytes, listen = subscribe } = this.#options;
    // No commit of ours is under way then, so what is counted from here on is counted on both sides.
    commits
      .run(async () => {
        if (stop.signal.aborted) return;
        this.#ownSeen = committed();
        listen({
          protocol: NETLINK_NETFILTER,
          groups: [nft.NFNLGRP_NFTABLES],
          onMessage: (reply) => this.#onMessage(reply),
          // Of our own commits only that they were, which is counted.
          own: { portId: () => client.portId, exceptType: (NFNL_SUBSYS_NFTABLES << 8) | nft.NFT_MSG_NEWGEN },
          onOverrun: () => {
            this.#isLost = true;
            this.#recover();
          },
          signal: stop.signal,
          rest: () => this.#rest(),
          ...(receiveBufferBytes === undefined ? {} : { receiveBufferBytes }),
        }).catch(fail);
        const { id = 0 } = await client.generation();
        this.#seen ??= id;
        this.#completeSince = id;
      })
      .catch(fail);
  }

  #onMessage(reply: Reply): void {
    if (reply.type >> 8 !== NFNL_SUBSYS_NFTABLES) return;
    const isOwn = this.#options.client.hasPort(reply.portId);
    if (isOwn) this.#hasOwn = true;
    else this.#hasForeign = true;
    if ((reply.type & 0xff) === nft.NFT_MSG_NEWGEN) {
      const { input, start, end } = nfnetlinkPayload(reply);
      const { id = 0, processId: pid, processName: name } = generationCodec.read(input, start, end);
      this.#onCommit(id, isOwn, pid === undefined || name === undefined ? undefined : { pid, name });
    } else if (!isOwn) {
      const object = announcedObject(reply);
      for (const watcher of this.#watchers) {
        if (object.family === watcher.nfproto && object.table === watcher.table) note(watcher, object);
      }
    }
  }

  /** Where only our own commits were announced: a while, or until it is asked what was announced. */
  #rest(): Promise<void> | undefined {
    const isOwnOnly = this.#hasOwn && !this.#hasForeign;
    this.#hasOwn = false;
    this.#hasForeign = false;
    if (!isOwnOnly || this.#stop?.signal.aborted !== false) return undefined;
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#wake = undefined;
        resolve();
      };
      const timer = setTimeout(end, REST_MS);
      this.#wake = end;
    });
  }

  #onCommit(id: number, isOwn: boolean, by: NftForeignChange["by"]): void {
    if (!isOwn && this.#isRecovering) this.#isDoubtful = true;
    const step = this.#seen === undefined ? 1 : distance(id, this.#seen);
    if (step > 0) {
      this.#seen = id;
      this.#missed += step - 1;
      if (isOwn) this.#ownSeen += 1;
      if (step > 1) this.#recover();
    }
    if (!isOwn) for (const watcher of this.#watchers) report(watcher, id, by);
  }

  /** After lost announcements: either all that is missing were commits of ours, or anything may have happened. */
  #recover(): void {
    if (this.#isRecovering) return;
    this.#isRecovering = true;
    const { client, commits, committed } = this.#options;
    commits
      .run(async () => {
        this.#isLost = false;
        const { id = 0 } = await client.generation();
        await this.#announced(id, RECOVERY_MS);
        const lag = this.#seen === undefined ? 0 : distance(id, this.#seen);
        // Others may have committed since it was read: that was announced, or counts as missed already.
        const isHarmless = !this.#isDoubtful && this.#missed + Math.max(0, lag) === committed() - this.#ownSeen;
        const last = lag < 0 ? (this.#seen ?? id) : id;
        this.#seen = last;
        this.#missed = 0;
        this.#ownSeen = committed();
        this.#isDoubtful = false;
        if (isHarmless) return;
        this.#completeSince = last;
        for (const watcher of this.#watchers) {
          touchedIn(watcher).isTotal = true;
          report(watcher, last, undefined);
        }
      })
      .catch((error: unknown) => this.#watchers.fail(error))
      .finally(() => {
        this.#isRecovering = false;
        if (this.#isLost) this.#recover();
      });
  }

  /** Waits a little until a generation, which is known to exist, has been announced. */
  async #announced(id: number, limitMs: number): Promise<boolean> {
    const endMs = performance.now() + limitMs;
    while (this.#seen === undefined || distance(id, this.#seen) > 0) {
      if (performance.now() > endMs) return false;
      this.#wake?.();
      await new Promise((resolve) => setTimeout(resolve, CATCH_UP_STEP_MS));
    }
    return true;
  }
}

/** Generations from `b` to `a`; they wrap at 2^32. */
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

/** Passes on what a commit has changed, if anything: others commit to tables of their own all the time. */
function report(watcher: Watcher, generation: number, by: NftForeignChange["by"]): void {
  const { touched } = watcher;
  if (touched === undefined) return;
  watcher.touched = undefined;
  watcher.touchedAt = generation;
  // With the table goes everything in it: too much to name.
  const all = { chains: NOTHING, sets: NOTHING, defined: NOTHING, isTotal: true };
  watcher.onChange({ ...(touched.isTotal ? all : touched), generation, by });
}

/** What the kernel announces of each object that a commit added or deleted. */
interface Announcement {
  readonly family: number;
  readonly table: string | undefined;
  /** A rule counts as a change of its chain, an element as one of its set. */
  readonly kind: "table" | "chain" | "set" | "other";
  /** Of the chain or set. */
  readonly name: string | undefined;
  /** Whether the chain or set itself was made or defined again. */
  readonly isDefinition: boolean;
}

/** NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, …: the same number in all messages. */
const TABLE = 1;
/** Per message: what changes, and the attribute that names it. */
const SUBJECTS: ReadonlyMap<number, readonly [kind: Announcement["kind"], nameAttribute: number]> = new Map([
  [nft.NFT_MSG_NEWTABLE, ["table", TABLE]],
  [nft.NFT_MSG_DELTABLE, ["table", TABLE]],
  [nft.NFT_MSG_NEWCHAIN, ["chain", 3]],
  [nft.NFT_MSG_DELCHAIN, ["chain", 3]],
  [nft.NFT_MSG_NEWRULE, ["chain", 2]],
  [nft.NFT_MSG_DELRULE, ["chain", 2]],
  [nft.NFT_MSG_NEWSET, ["set", 2]],
  [nft.NFT_MSG_DELSET, ["set", 2]],
  [nft.NFT_MSG_NEWSETELEM, ["set", 2]],
  [nft.NFT_MSG_DELSETELEM, ["set", 2]],
]);

/** Reads no more than where the change was. Throws `malformed`. */
function announcedObject(reply: Reply): Announcement {
  const [kind, nameAttribute] = SUBJECTS.get(reply.type & 0xff) ?? (["other", 0] as const);
  const { family, input, start, end } = nfnetlinkPayload(reply);
  let table: string | undefined;
  let name: string | undefined;
  forEachAttribute(input, start, end, (type, from, to) => {
    if (type === TABLE) table = zstring.read(input, from, to);
    else if (type === nameAttribute) name = zstring.read(input, from, to);
  });
  const message = reply.type & 0xff;
  const isDefinition = message === nft.NFT_MSG_NEWCHAIN || message === nft.NFT_MSG_NEWSET;
  return { family, table, kind, name, isDefinition };
}
