/** One pass over every address of every service port: requests from all positions, results as they come. */

import type { Protocol } from "../src/net/protocol.ts";
import type { Prober } from "../testkit/net/namespace-prober.ts";
import { isProbeable, probeCell } from "./cell-probe.ts";
import type { ClusterView, DemoEndpoint, DemoService } from "./cluster-view.ts";
import { describe } from "./judgement.ts";
import type { PlannedAnswers } from "./planned-answers.ts";
import { demoNode, type PlayedNode } from "./played-node.ts";
import type { Block, Cell, PodShare, Row } from "./results.ts";
import { type Position, positionsOf, type Target, targetsOf } from "./targets.ts";

function traitsOf(service: DemoService): string[] {
  return [
    service.type,
    ...(service.externalLocal && service.type !== "ClusterIP" ? ["external Local"] : []),
    ...(service.internalLocal ? ["internal Local"] : []),
    ...(service.isSticky ? ["ClientIP affinity"] : []),
    ...(service.sourceRanges.length > 0 ? [`only ${service.sourceRanges.join(" ")}`] : []),
  ];
}

function stateOf(endpoint: DemoEndpoint): string {
  if (endpoint.isReady) return "";
  return endpoint.isServingTerminating ? "terminating" : "not ready";
}

function sharesOf(endpoints: readonly DemoEndpoint[], node: PlayedNode): Map<string, PodShare> {
  return new Map(
    endpoints.map((endpoint) => {
      const place = endpoint.nodeName === node.name ? "" : endpoint.nodeName;
      return [endpoint.pod, { place, state: stateOf(endpoint), answers: 0 }];
    }),
  );
}

/** The empty table for a cluster. */
export function blocksOf(
  view: ClusterView,
  answers: Pick<PlannedAnswers, "isLed">,
  node: PlayedNode = demoNode,
): Block[] {
  const blocks = new Map<string, Block & { rows: Row[] }>();
  for (const target of targetsOf(view, node.addresses, (target) => answers.isLed(target))) {
    const { service, port } = target;
    const name = port.name === "" ? service.key : `${service.key}:${port.name}`;
    const key = `${name} ${port.protocol}`;
    let block = blocks.get(key);
    if (block === undefined) {
      const note = isProbeable(port.protocol) ? "" : `${port.protocol} is not probed: Node.js has no sockets for it`;
      const title = `${name}  ${port.protocol} ${port.port}`;
      const endpoints = [view.endpointsOf(service, port, "IPv4"), view.endpointsOf(service, port, "IPv6")];
      const fingerprint = JSON.stringify([service, port, endpoints]);
      const rows: Row[] = [];
      block = { title, traits: traitsOf(service), rows, pods: new Map(), note, fingerprint, isChanged: false };
      blocks.set(key, block);
    }
    if (!block.pods.has(target.family))
      block.pods.set(target.family, sharesOf(view.endpointsOf(service, port, target.family), node));
    const positions = block.note === "" ? positionsOf(target.kind) : [];
    const cells = new Map(
      positions.map((position): [Position, Cell] => [
        position,
        { judgement: undefined, previous: undefined, requests: 0, expected: "" },
      ]),
    );
    block.rows.push({ target, cells });
  }
  return [...blocks.values()];
}

/** How many cells are probed at a time. With more, clients on a slow machine would count waiting requests as lost. */
const AT_ONCE = 8;

export interface PassDeps {
  readonly answers: Pick<PlannedAnswers, "answerTo">;
  readonly probers: Readonly<Record<Position, Prober>>;
  /** Called after each cell. */
  onProgress(): void;
  readonly signal: AbortSignal;
}

/**
 * Probes every cell without a judgement; resolves when all are judged, or soon after an abort with the rest pending.
 * Rejects if a client has ended.
 */
export async function runPass(blocks: readonly Block[], deps: PassDeps): Promise<void> {
  const waiting = blocks.flatMap((block) => sequencesOf(block).map((asks) => ({ block, asks }))).values();
  const work = async (): Promise<void> => {
    for (const { block, asks } of waiting) await runSequence(block, asks, deps);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

interface Ask {
  readonly target: Target;
  readonly protocol: Protocol;
  readonly position: Position;
  readonly cell: Cell;
}

/**
 * Cells that must not overlap. With affinity, requests of one client to different addresses of a service port share its
 * remembered pod, so they run one after the other; everything else runs in parallel.
 */
function sequencesOf(block: Block): Ask[][] {
  const asks: Ask[] = [];
  for (const { target, cells } of block.rows) {
    const { protocol } = target.port;
    if (!isProbeable(protocol)) continue;
    for (const [position, cell] of cells) {
      if (cell.judgement === undefined) asks.push({ target, protocol, position, cell });
    }
  }
  const isSticky = block.rows[0]?.target.service.isSticky === true;
  if (!isSticky) return asks.map((ask) => [ask]);
  return Object.values(Object.groupBy(asks, ({ position }) => position)).filter((group) => group !== undefined);
}

async function runSequence(block: Block, asks: readonly Ask[], deps: PassDeps): Promise<void> {
  for (const { target, protocol, position, cell } of asks) {
    if (deps.signal.aborted) return;
    const expected = deps.answers.answerTo(target, position);
    const { judgement, answers } = await probeCell(deps.probers[position], target, protocol, expected);
    if (deps.signal.aborted) return;
    cell.judgement = judgement;
    cell.expected = describe(expected);
    cell.requests += answers.length;
    for (const answer of answers) {
      const pod = answer.ok ? block.pods.get(target.family)?.get(answer.pod) : undefined;
      if (pod !== undefined) pod.answers += 1;
    }
    deps.onProgress();
  }
}
