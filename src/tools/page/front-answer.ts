/** The page's front: whether this node's Services are answered, what is wrong first, and a square for each of them. */

import type { LiveDaemon, LiveFamily } from "../../agent/daemon/inspect-report.ts";
import { sortedKeys } from "../../async/sorted-keys.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { FrontAnswer, WrongService } from "./answers.ts";
import { namesAround, wordsIn } from "./named-words.ts";
import { explainLive } from "./service-answer.ts";
import { type FamilyPort, familiesOf, gradeOf } from "./service-table.ts";

/** More are counted, and listed by the service table. */
const MAX_WRONG = 20;
/** More squares than that are not told apart on a screen. */
const MAX_SQUARES = 20_000;
const LEAST_PAUSE_MS = 2_000;

/** Yields to other work meanwhile. @param viewOf a family as a node. */
export async function frontAnswer(
  daemon: LiveDaemon,
  viewOf: (family: LiveFamily) => Promise<OfflineNode>,
  signal: AbortSignal,
): Promise<Omit<FrontAnswer, "tracked">> {
  const beganMs = performance.now();
  const refused = new Map(daemon.verdict().failures.map(({ subject, reason }) => [subject, reason]));
  const services = new Map<string, { key: string; grade: 0 | 1 | 2 }>();
  const wrong: { readonly key: string; readonly grade: 1 | 2; readonly families: readonly FamilyPort[] }[] = [];
  for (const key of await sortedKeys(new Map(daemon.families.flatMap(({ state }) => [...state.services])), signal)) {
    if (isTurnDue()) await giveTurn(signal);
    const families = familiesOf(daemon, key);
    const [first] = families;
    if (first === undefined) continue;
    const { service, text } = first[1].name;
    const grade = refused.has(text) ? 2 : gradeOf(daemon, families);
    if (grade !== 0) wrong.push({ key, grade, families });
    const known = services.get(service);
    if (known === undefined || known.grade < grade) services.set(service, { key, grade });
  }
  const squares = Array.from(services, ([name, { key, grade }]) => [name, key, grade] as const);
  squares.sort((one, other) => other[2] - one[2]);
  const told: WrongService[] = [];
  for (const { key, grade, families } of wrong.sort((one, other) => other.grade - one.grade).slice(0, MAX_WRONG)) {
    const name = families[0]?.[1].name.text ?? key;
    const refusal = refused.get(name);
    const said =
      refusal === undefined
        ? await whyOf(daemon, families, viewOf)
        : { why: `Refused by the kernel: ${refusal}`, names: [] };
    told.push({ key, name, isSilent: grade === 2, ...said });
  }
  const silent = squares.filter(([, , grade]) => grade === 2).length;
  return {
    ...{ total: squares.length, silent, partly: squares.filter(([, , grade]) => grade === 1).length },
    ...{ wrong: told, wrongPorts: wrong.length, squares: squares.slice(0, MAX_SQUARES) },
    // Takes at most a twenty-fifth of the time.
    pauseMs: Math.max(LEAST_PAUSE_MS, 24 * Math.round(performance.now() - beganMs)),
  };
}

/** In the words of `explain`, without what clients meet: that would need the plan. */
async function whyOf(
  daemon: LiveDaemon,
  families: readonly FamilyPort[],
  viewOf: (family: LiveFamily) => Promise<OfflineNode>,
): Promise<Pick<WrongService, "why" | "names">> {
  const [family, port] = families.find((one) => gradeOf(daemon, [one]) !== 0) ?? families[0] ?? [];
  if (family === undefined || port === undefined) return { why: "", names: [] };
  const explained = await explainLive(daemon, family, await viewOf(family), port, () => []);
  const isEvery = families.every((one) => gradeOf(daemon, [one]) !== 0);
  const why = `${isEvery ? "" : `${family.family}: `}${explained.causes.join(" ")}`;
  const words = new Set(wordsIn(why));
  return { why, names: [...namesAround(explained)].filter(([name]) => words.has(name)) };
}
