/**
 * Applies changes of several owners when the kernel will reject some: those that the tool names, or that are found by trying
 * halves (`bisect.ts`). A rejected owner keeps what it had.
 */
import { type Iptables, IptablesRestoreError, isAttributable } from "../../../kernel/iptables/iptables.ts";
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { chainLines } from "../../../kernel/iptables/rule-text.ts";
import { bisect } from "../bisect.ts";
import { deltaPayload, droppedChains, type OwnerChange } from "./delta-payload.ts";
import { NO_RULES, type OwnerRules, remembered } from "./owner-rules.ts";
import { addWritten, ownerOfLine, type Payload, send, staleChainOwner, type WrittenRules } from "./payload.ts";

/** The change that deletes a stale chain. */
export function removalOf(chain: ChainName): OwnerChange {
  return { owner: staleChainOwner(chain), before: { ...NO_RULES, ownChains: chainLines([chain]) } };
}

interface BisectChangesOptions {
  readonly onRefused: (error: IptablesRestoreError) => void;
  /** After this many rejected restores the rest is not tried: neither accepted nor refused. @default no limit */
  readonly maxRefusals?: number;
}

interface BisectChangesResult {
  /** The tool's message by owner, including chains that could not be deleted. */
  readonly refused: ReadonlyMap<string, string>;
  /** The kernel's rules of every owner of the changes; `undefined`: none. */
  readonly states: ReadonlyMap<string, OwnerRules | undefined>;
  /** Owners whose change is complete. */
  readonly accepted: readonly string[];
  readonly written: WrittenRules;
}

/**
 * Applies what the kernel accepts. Rejects, possibly halfway, if the cause is not a rule (lock, missing tool).
 *
 * Tables are written one after the other: in a payload with both, the first would stay in force if the second is rejected.
 * Unneeded chains are deleted last and separately: one that cannot be deleted is no reason to leave its owner out.
 */
export async function bisectChanges(
  iptables: Iptables,
  changes: readonly OwnerChange[],
  { onRefused, maxRefusals = Number.POSITIVE_INFINITY }: BisectChangesOptions,
): Promise<BisectChangesResult> {
  const refused = new Map<string, string>();
  let refusals = 0;
  let written: WrittenRules = { filter: 0, nat: 0 };

  /** Applies one part of each change. */
  const apply = (whole: readonly OwnerChange[], part: (change: OwnerChange) => OwnerChange) =>
    bisect(whole, {
      attempt: async (group) => {
        const payload = deltaPayload(group.map(part));
        const result = await tried(iptables, payload);
        if (result instanceof IptablesRestoreError) {
          refusals += 1;
          onRefused(result);
          const named = ownerOfLine(payload, result.line);
          return { reason: result.output, offender: group.find(({ owner }) => owner === named) };
        }
        written = addWritten(written, result);
        return undefined;
      },
      onOffender: ({ owner }, reason: string) => refused.set(owner, reason),
      isGivenUp: () => refusals >= maxRefusals,
    });

  const states = new Map(changes.map(({ owner, before }) => [owner, before]));
  const inFilter = await apply(changes, filterPart);
  const inNat = await apply(inFilter, natPart);
  const dropped = inNat.flatMap(droppedChains);
  // Emptied first, because they may jump to one another.
  const emptying = dropped.map((chain) => ({ owner: chain, after: { ...NO_RULES, ownChains: chainLines([chain]) } }));
  const emptied = await tried(iptables, deltaPayload(emptying));
  if (emptied instanceof IptablesRestoreError) {
    for (const chain of dropped) refused.set(staleChainOwner(chain), emptied.output);
  } else await apply(dropped.map(removalOf), (change) => change);

  const accepted = new Set(inNat.flatMap(({ owner }) => (refused.has(owner) ? [] : [owner])));
  for (const { owner, after } of inNat) if (accepted.has(owner)) states.set(owner, after && remembered(after));
  const done = new Set(inNat);
  const halfDone = inFilter.filter((change) => !done.has(change));
  // Owners whose nat rules were rejected get their old entries in filter back.
  if ((await tried(iptables, deltaPayload(halfDone.map(filterPartUndone)))) instanceof IptablesRestoreError) {
    for (const { owner, before, after } of halfDone) {
      states.set(owner, { ...NO_RULES, ...before, filter: after?.filter ?? "" });
    }
  }
  return { refused, states, accepted: [...accepted], written };
}

/** Resolves to the refusal if single rules may have caused it. */
async function tried(iptables: Iptables, payload: Payload): Promise<WrittenRules | IptablesRestoreError> {
  try {
    return await send(iptables, payload);
  } catch (error) {
    if (!isAttributable(error)) throw error;
    return error;
  }
}

const onlyFilter = (rules: OwnerRules | undefined) => rules && { ...NO_RULES, filter: rules.filter };

function filterPart({ owner, before, after }: OwnerChange): OwnerChange {
  return { owner, before: onlyFilter(before), after: onlyFilter(after) };
}

function filterPartUndone({ owner, before, after }: OwnerChange): OwnerChange {
  return { owner, before: onlyFilter(after), after: onlyFilter(before) };
}

/** The part of a change in nat, without the deletion of chains. */
function natPart({ owner, before, after }: OwnerChange): OwnerChange {
  return { owner, before: before && { ...NO_RULES, nat: before.nat }, after: after && { ...after, filter: "" } };
}
