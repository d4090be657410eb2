/**
 * What a process leaves for the next one in the kernel, with a rule of its own: a digest of all that its rules were planned from, and
 * the generation of the ruleset after that. The kernel counts every commit of any program in the network namespace. Where it has counted
 * none since, and the next process would plan from the same, there is nothing to read and nothing to write. A note is never wrong: it goes
 * with the rule, the namespace and the kernel, and any commit makes it void.
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

/** The last of the base chains: it has one rule, whichever the layout. */
const CHAIN = "nat-postrouting";

export interface RestartNoteOptions {
  readonly ruleset: Pick<NetlinkRuleset, "note" | "leaveNote">;
  /** The table that has the note, for all families. */
  readonly table: NetlinkTableName;
  /** Version and commit: another program may plan otherwise. */
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
   * The moment at which the process before left what this one would plan, if no other program has touched the table since; otherwise
   * undefined. Rejects when the signal aborts.
   */
  async asLeft(
    { family, generationIfUntouched }: Pick<Nftables, "family" | "generationIfUntouched">,
    premises: TablePremises,
    { services, endpoints }: Pick<SyncInput, "services" | "endpoints">,
    signal: AbortSignal,
  ): Promise<NftMark | undefined> {
    const { ruleset, table, log } = this.#options;
    this.#left ??= ruleset.note(table, CHAIN).catch((error: unknown) => {
      log.v(2, "Cannot read what the process before left", { reason: messageOf(error) });
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
   * Notes what is in the kernel, for {@link leave}; nothing of this program may be committed in between. Never rejects.
   *
   * @param mark when the kernel was known to have what the state says; what this process has committed since is in the state.
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

  /** Leaves a note for the families that have offered one. Never rejects: without a note the next process compares everything. */
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

  /** Of all that decides what is in the table of a family; undefined where it is not known what a port was planned from. */
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

/** Characters of six bits. */
const DIGEST_LENGTH = 24;
/** Given to the digest at once. */
const TEXT_LENGTH = 16_384;

interface PlannedFrom {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
}

/** Every field of both. */
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
