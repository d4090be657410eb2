/**
 * A note for the next process, kept in the kernel with one of our rules: a digest of the input of all plans, and the
 * generation of the ruleset after the note. The kernel counts every commit of any program in the network namespace. If
 * it has counted none since, and the next process has the same input, nothing needs to be read or written. A note is
 * never wrong: it disappears with the rule, the namespace and the kernel, and any commit invalidates it.
 */
import { createHash } from "node:crypto";
import { sortedKeys } from "../../async/sorted-keys.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { NetlinkRuleset, NetlinkTableName } from "../../kernel/nftables/netlink-nftables.ts";
import type { Nftables, NftMark } from "../../kernel/nftables/nftables.ts";
import type { NftFamily } from "../../kernel/nftables/ruleset.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { SyncInput } from "../../sync/backend.ts";
import { baseChains } from "./base-chains.ts";
import type { TablePremises, TableState } from "./table-state.ts";

/** The last base chain: it has one rule in every layout. */
const CHAIN = "nat-postrouting";

export interface RestartNoteOptions {
  readonly ruleset: Pick<NetlinkRuleset, "note" | "leaveNote">;
  /** The table that holds the note of all families. */
  readonly table: NetlinkTableName;
  /** Version and commit: another version may plan differently. */
  readonly program: string;
  readonly log: Logger;
}

/** Shared by the families. */
export class RestartNote {
  readonly #options: RestartNoteOptions;
  readonly #offers = new Map<NftFamily, { readonly digest: string; readonly generation: number }>();
  #left: ReturnType<NetlinkRuleset["note"]> | undefined;

  constructor(options: RestartNoteOptions) {
    this.#options = options;
  }

  /**
   * The mark at which the previous process left exactly what this one would plan, if no other program changed the table
   * since; otherwise undefined. Rejects when the signal aborts.
   */
  async asLeft(
    { family, generationIfUntouched }: Pick<Nftables, "family" | "generationIfUntouched">,
    premises: TablePremises,
    { services, endpoints }: Pick<SyncInput, "services" | "endpoints">,
    signal: AbortSignal,
  ): Promise<NftMark | undefined> {
    const { ruleset, table, log } = this.#options;
    this.#left ??= ruleset.note(table, CHAIN).catch((error: unknown) => {
      log.v(2, "Cannot read the note that the previous process left", { reason: messageOf(error) });
      return undefined;
    });
    const left = await this.#left;
    const noted = left?.content.split(" ").find((part) => part.startsWith(`${family}:`));
    if (left === undefined || noted === undefined) return undefined;
    const from = (key: string) => ({ port: services.get(key), endpoints: endpoints.get(key) ?? [] });
    if (noted !== (await this.#digest(family, premises, services, from, signal))) return undefined;
    const generation = await generationIfUntouched(left.mark).catch(() => undefined);
    return generation === undefined ? undefined : left.mark;
  }

  /**
   * Records the kernel's state for {@link leave}; this program must not commit in between. Never rejects.
   *
   * @param mark a time at which the kernel was known to match the state; the state includes our commits since then.
   */
  async offer(
    { family, generationIfUntouched }: Pick<Nftables, "family" | "generationIfUntouched">,
    { premises, ports }: TableState,
    mark: NftMark,
  ): Promise<void> {
    const digest = await this.#digest(family, premises, ports, (key) => ports.get(key));
    const generation = await generationIfUntouched(mark).catch(() => undefined);
    if (digest !== undefined && generation !== undefined) this.#offers.set(family, { digest, generation });
  }

  /** Writes the note of the families that offered one. Never rejects: without it the next process compares everything. */
  async leave(): Promise<void> {
    const { ruleset, table, log } = this.#options;
    const generation = Math.max(...Array.from(this.#offers.values(), (offer) => offer.generation));
    const offers = [...this.#offers.values()].filter((offer) => offer.generation === generation);
    const [rule] = baseChains().find(({ name }) => name === CHAIN)?.rules ?? [];
    if (offers.length === 0 || rule === undefined) return;
    try {
      const content = offers.map(({ digest }) => digest).join(" ");
      await ruleset.leaveNote(table, { chain: CHAIN, rule, content, generation });
    } catch (error) {
      log.v(2, "The next start will compare all rules", { reason: messageOf(error) });
    }
  }

  /** A digest of all input that decides a family's table; undefined if the input of some port is unknown. */
  async #digest(
    family: NftFamily,
    { layout, config, facts }: TablePremises,
    ports: ReadonlyMap<string, unknown>,
    plannedFrom: (key: string) => { readonly [K in keyof PlannedFrom]?: PlannedFrom[K] | undefined } | undefined,
    signal?: AbortSignal,
  ): Promise<string | undefined> {
    const hash = createHash("sha256");
    let text = JSON.stringify([this.#options.program, layout.name, config, facts]);
    for (const key of await sortedKeys(ports, signal)) {
      const { port, endpoints } = plannedFrom(key) ?? {};
      if (port === undefined || endpoints === undefined) return undefined;
      text += textOf({ port, endpoints });
      if (text.length < TEXT_LENGTH) continue;
      hash.update(text);
      text = "";
      if (isTurnDue()) await giveTurn(signal);
    }
    hash.update(text);
    return `${family}:${hash.digest("base64url").slice(0, DIGEST_LENGTH)}`;
  }
}

/** In base64url characters, of six bits each. */
const DIGEST_LENGTH = 24;
/** How much text is collected before it is hashed. */
const TEXT_LENGTH = 16_384;

interface PlannedFrom {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
}

/** The text of every field of both. */
function textOf({ port, endpoints }: PlannedFrom): string {
  const { lostFrontends } = port;
  let text = JSON.stringify(lostFrontends === undefined ? port : { ...port, lostFrontends: [...lostFrontends].sort() });
  for (const { text: address, isLocal, isReady, isServing, isTerminating, zoneHints, nodeHints } of endpoints) {
    const flags = Number(isLocal) | (Number(isReady) << 1) | (Number(isServing) << 2) | (Number(isTerminating) << 3);
    text += `${address} ${flags}\n`;
    if (zoneHints !== undefined || nodeHints !== undefined) text += JSON.stringify([zoneHints, nodeHints]);
  }
  return text;
}
