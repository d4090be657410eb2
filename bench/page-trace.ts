/** What a running daemon takes to answer a trace that its page asks for, and for how long at a stretch it does nothing else. */
import { modeNamed, type ProxyMode } from "../src/dataplane/registry.ts";
import { offlineNode } from "../src/inspect/offline-node.ts";
import { checkedSettings } from "../src/lib/plan-settings.ts";
import { traceAnswer } from "../src/page/trace-answer.ts";
import { benchObjects, benchService } from "./cluster.ts";
import { ownCpuMs } from "./memory.ts";

export interface PageTrace {
  readonly mode: ProxyMode;
  readonly services: number;
  /** Processor time of the main thread: of the first answer, for which code is compiled, and of one after it. */
  readonly firstMs: number;
  readonly nextMs: number;
  /** The longest turn of the later answers. */
  readonly turnMs: number;
}

const LATER = 5;

/** Asks for the way to the last service. */
export async function pageTrace(mode: ProxyMode, services: number, endpoints: number): Promise<PageTrace> {
  const { config } = await checkedSettings({ config: { mode, clusterCIDR: "10.128.0.0/9" }, node: "node-a" });
  await modeNamed(mode).loadRenderer();
  const node = offlineNode(benchObjects(services, endpoints), config, "IPv4", () => {});
  const daemon = { config, podCIDRs: [], families: [{ family: "IPv4" as const }] };
  const to = benchService(services - 1).clusterIP;
  const question = { from: "node", to, port: "80", protocol: "tcp", isVerbose: false };
  const answer = async () => {
    const { outcomes } = await traceAnswer(daemon, question, async () => node);
    if (outcomes.length === 0) throw new Error(`${mode}: nothing becomes of the packet`);
  };
  const first = await watched(answer);
  let [nextMs, turnMs] = [0, 0];
  for (let index = 0; index < LATER; index += 1) {
    const later = await watched(answer);
    nextMs += later.cpuMs / LATER;
    turnMs = Math.max(turnMs, later.turnMs);
  }
  return { mode, services, firstMs: first.cpuMs, nextMs, turnMs };
}

/** Runs the work beside a loop that asks, in each turn, how much processor time the last one took. */
async function watched(work: () => Promise<void>): Promise<{ readonly cpuMs: number; readonly turnMs: number }> {
  let isOver = false;
  let turnMs = 0;
  const began = ownCpuMs();
  let last = began;
  const turn = () => {
    const now = ownCpuMs();
    turnMs = Math.max(turnMs, now - last);
    last = now;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  await work();
  isOver = true;
  return { cpuMs: ownCpuMs() - began, turnMs: Math.max(turnMs, ownCpuMs() - last) };
}
