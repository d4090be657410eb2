/**
 * A packet's way through a node's hooks, as in the kernel (reference iptables.md §2, nftables.md §2). Nat chains see a connection's first packet alone.
 */
import { isLocalQuestion, type NodeFacts } from "../facts.ts";
import type { Packet } from "../packet.ts";
import { whichOf } from "../question.ts";
import { anyFirst, bothAnswers, branchesOf, continued, eitherWay } from "./branches.ts";
import { chainName, type EffectOf, isIdle, nextChains, programOf } from "./calling-order.ts";
import { LONG_WAY, tellOfChain, tellOfChange, tellOfStep } from "./observer.ts";
import {
  type BaseChain,
  isAfterTracking,
  NO_MATCH,
  type Program,
  placeIn,
  type Rule,
  resultOf,
  type Stage,
  type StepResult,
  usualRefusal,
  type Verdict,
  verdictText,
} from "./program.ts";
import { fatesOfRefusal } from "./refusal.ts";
import {
  type Fate,
  IDLE,
  type Outcome,
  outcomesOf,
  TooManyWaysError,
  type TraceEvent,
  type TraceNode,
  type WalkOptions,
} from "./tree.ts";
import {
  type Branch,
  endOf,
  type Frame,
  isRoutedAgain,
  missEvent,
  openNode,
  placeOf,
  startOf,
  type Walk,
} from "./walk-state.ts";
import { fateOfLeaving, firstHook, whyNotAsked, withTranslation, withTranslationDecided } from "./without-rules.ts";

const LIMIT = 100_000;
const NO_CHAINS = programOf([]);
const LEFT: Partial<Walk> = { step: 0, frame: undefined }; // behind a base chain

/** Walks a packet along every path that it may take. @throws TooManyWaysError */
export function walk(program: Program, packet: Packet, facts: NodeFacts, options: WalkOptions = {}): TraceNode {
  const stage = packet.origin === "socket" && packet.state === "new" ? "socket" : firstHook(packet);
  return new Machine(program, packet, facts, options).run(startOf(stage, packet, options.answers));
}

/** A walk may end with its hook. An answer is what the node sends for a packet that was refused. */
type Scope = "way" | "hook" | "answer";

class Machine {
  readonly #program: Program;
  readonly #asked: Packet;
  readonly #facts: NodeFacts;
  readonly #options: WalkOptions;
  readonly #scope: Scope;
  readonly #open: Walk[] = [];
  #ends = 1;

  constructor(program: Program, asked: Packet, facts: NodeFacts, options: WalkOptions, scope: Scope = "way") {
    this.#program = program;
    this.#asked = asked;
    this.#facts = facts;
    this.#options = options;
    this.#scope = scope;
  }

  run(start: Walk): TraceNode {
    this.#enter(start, start.stage);
    this.#open.push(start);
    for (let walk = this.#open.pop(); walk !== undefined; walk = this.#open.pop()) {
      while (!this.#advance(walk));
    }
    return start.node;
  }

  #note(walk: Walk, event: TraceEvent): void {
    if (this.#options.record !== "ends") walk.node.events.push(event);
  }

  /** Takes one step. @returns whether this path has ended, or forked. */
  #advance(walk: Walk): boolean {
    const { frame } = walk;
    if (frame === undefined) return this.#nextBaseChain(walk);
    const { chain } = frame;
    const index = walk.step > 0 ? frame.index : this.#candidate(walk, frame);
    const rule = index < chain.length ? chain.ruleAt(index) : undefined;
    if (rule === undefined) return this.#comeBack(walk, frame.caller);
    if (index !== frame.index) walk.frame = { ...frame, index };
    if (frame.caller === undefined && this.#options.isLeftOut?.(walk.base?.table ?? "", chain.name, rule) === true) {
      this.#nextRule(walk);
      return false;
    }
    return this.#runRule(walk, rule);
  }

  #candidate(walk: Walk, { chain, index }: Frame): number {
    if (this.#options.observer !== undefined) tellOfChain(this.#options.observer, chain, walk.packet, index);
    const next = chain.firstCandidate?.(index, walk.packet) ?? index;
    if (this.#options.record === "all" && chain.isNumbered !== false && next > index) {
      this.#note(walk, { kind: "skipped", chain: chain.name, count: next - index });
    }
    return next;
  }

  #runRule(walk: Walk, rule: Rule): boolean {
    const { observer } = this.#options;
    if (observer !== undefined && rule.isIdle === true) {
      this.#nextRule(walk);
      return false;
    }
    if (observer !== undefined && ++walk.met > LONG_WAY && walk.frame !== undefined)
      observer.isFar?.(walk.base?.table ?? "", walk.frame.chain, walk.packet);
    for (let at = walk.step; at < rule.steps.length; at += 1) {
      const step = rule.steps[at];
      if (step === undefined) break;
      if (observer !== undefined && walk.decided === undefined) tellOfStep(observer, step, rule, walk.packet);
      const result: StepResult = walk.decided ?? resultOf(step, walk.packet, walk.entries);
      walk.decided = undefined;
      if (result.kind === "go-on" || result.kind === "verdict") {
        if (observer !== undefined) tellOfChange(observer, walk.packet, result.packet);
        if (result.packet !== undefined) walk.packet = result.packet;
        if (result.entry !== undefined) walk.entries = [...walk.entries, result.entry];
      }
      switch (result.kind) {
        case "go-on":
          if (result.said !== undefined) this.#noteMatch(walk, rule, result.said);
          continue;
        case "no-match":
          this.#noteMiss(walk, rule, at);
          this.#nextRule(walk);
          return false;
        case "verdict":
          this.#noteMatch(walk, rule, result.said ?? verdictText(result.verdict));
          return this.#obey(walk, result.verdict, rule);
        case "lost":
          return this.#finish(walk, { kind: "uncertain", because: result.because, by: placeOf(walk, rule) });
        case "choice":
        case "unknown":
          return this.#decide(walk, rule, at, result);
      }
    }
    if (!rule.steps.some(({ isAction }) => isAction === true)) this.#noteMatch(walk, rule, IDLE);
    this.#nextRule(walk);
    return false;
  }

  /** Continues if the choice is made or the answer is known, and forks otherwise. */
  #decide(walk: Walk, rule: Rule, at: number, result: StepResult & { kind: "choice" | "unknown" }): boolean {
    const { observer } = this.#options;
    walk.step = at;
    if (result.kind === "unknown") {
      if (observer !== undefined)
        for (const step of rule.steps.slice(at + 1)) tellOfStep(observer, step, rule, walk.packet);
      // A rule that changes nothing for the packet needs no answer.
      const after = walk.answers.has(result.question) ? undefined : eitherWay(rule, at, walk, result);
      if (after !== undefined) {
        if (after !== walk.packet)
          this.#note(walk, { kind: "remark", text: `the connection's mark: not known whether ${result.question}` });
        walk.packet = after;
        walk.decided = NO_MATCH;
        return false;
      }
    }
    const branches = branchesOf(result, walk.answers, this.#options);
    if (branches.length === 1) {
      walk.decided = branches[0]?.result;
      return false;
    }
    return this.#fork(
      walk,
      result.kind === "unknown" ? `whether ${result.question}` : undefined,
      branches.map((branch) => continued(walk, branch)),
      result.kind === "unknown" ? placeOf(walk, rule) : undefined,
    );
  }

  #fork({ node: end }: Walk, question: string | undefined, branches: readonly Branch[], by?: string): boolean {
    const { maxEnds = LIMIT } = this.#options;
    this.#ends += branches.length - 1;
    if (this.#ends > maxEnds) throw new TooManyWaysError(maxEnds);
    const ends = branches.map(({ odds, label, walk }) => {
      const node = openNode();
      this.#open.push({ ...walk, node });
      return { odds, label, node };
    });
    end.end = { kind: "fork", question, branches: ends, ...(by !== undefined && { by }) };
    return true;
  }

  #noteMatch(walk: Walk, rule: Rule, said: string): void {
    if (walk.frame === undefined) return;
    const { chain, index } = walk.frame;
    this.#note(walk, { kind: "match", chain: chain.name, index: placeIn(chain, index), rule, said });
  }

  #noteMiss(walk: Walk, rule: Rule, at: number): void {
    if (this.#options.record !== "all" || walk.frame === undefined) return;
    this.#note(walk, missEvent(walk.frame, rule, at, walk.packet));
  }

  #nextRule(walk: Walk): void {
    walk.step = 0;
    if (walk.frame !== undefined) walk.frame = { ...walk.frame, index: walk.frame.index + 1 };
  }

  #obey(walk: Walk, verdict: Verdict, rule: Rule): boolean {
    const { frame } = walk;
    if (frame === undefined) return false;
    switch (verdict.kind) {
      case "accept":
        Object.assign(walk, LEFT);
        return false;
      case "drop":
        return this.#finish(walk, { kind: "dropped", by: placeOf(walk, rule) });
      case "reject":
        return this.#refuse(walk, verdict.answer ?? usualRefusal(walk.packet));
      case "return":
        return this.#comeBack(walk, frame.caller);
      case "forward-to":
        // IPVS runs after the nat chains of output, which have decided, and before those of input.
        if (walk.stage === "output") walk.packet = withTranslationDecided(walk.packet, walk.stage);
        this.#enter(walk, verdict.stage);
        return false;
      case "jump":
      case "goto": {
        if (this.#options.isLeftOut?.(walk.base?.table ?? "", verdict.chain) === true) {
          this.#nextRule(walk);
          return false;
        }
        const chain = walk.base?.chainNamed(verdict.chain);
        const because = `there is no chain ${verdict.chain} in what was given`;
        if (chain === undefined) return this.#finish(walk, { kind: "uncertain", because });
        const caller = verdict.kind === "goto" ? frame.caller : { ...frame, index: frame.index + 1 };
        walk.step = 0;
        walk.frame = { chain, index: 0, caller };
        return false;
      }
    }
  }

  #refuse(walk: Walk, answer: string): boolean {
    const by = placeOf(walk, walk.frame?.chain.ruleAt(walk.frame.index));
    // Nothing answers an ICMP error.
    if (this.#scope === "answer") return this.#finish(walk, { kind: "dropped", by });
    const refused = { packet: walk.packet, answer, by };
    const fates = fatesOfRefusal(refused, this.#facts, this.#options, (packet, options) =>
      outcomesOf(new Machine(this.#program, packet, this.#facts, options, "answer").run(startOf("output", packet))),
    );
    const [only, ...others] = fates;
    if (only !== undefined && others.length === 0) return this.#finish(walk, only.fate);
    const branches = fates.map(({ odds, fate }) => ({ odds, label: `${by}: ${fate.kind}`, node: endOf(walk, fate) }));
    walk.node.end = { kind: "fork", question: undefined, branches };
    return true;
  }

  /** At the end of a chain, returns to the caller, or applies the policy. */
  #comeBack(walk: Walk, caller: Frame | undefined): boolean {
    walk.step = 0;
    if (caller !== undefined) {
      walk.frame = caller;
      return false;
    }
    const base = walk.base;
    if (base?.policy === "drop" && this.#options.isLeftOut?.(base.table, base.chain.name, "policy") !== true) {
      this.#note(walk, { kind: "policy", chain: base });
      return this.#finish(walk, { kind: "dropped", by: `the policy of ${base.table} ${base.chain.name}` });
    }
    Object.assign(walk, LEFT);
    return false;
  }

  #enter(walk: Walk, stage: Stage): void {
    walk.stage = stage;
    if (stage === "output") this.#sendBy(walk);
    walk.base = undefined;
    const { isLeftOut } = this.#options;
    walk.rest = this.#program[stage].filter(({ table, chain }) => isLeftOut?.(table, chain.name) !== true);
    walk.settled = this.#options.isInOrder === true ? walk.rest.length : 0;
    walk.step = 0;
    walk.frame = undefined;
    if (stage === "socket" && this.#program.socket.length === 0) return;
    this.#note(walk, { kind: "stage", stage, packet: walk.packet });
  }

  #nextBaseChain(walk: Walk): boolean {
    if (walk.stage === "output" && isRoutedAgain(walk)) walk.packet = { ...walk.packet, routedMark: walk.packet.mark };
    if (walk.rest.length === 0) return this.#leaveStage(walk);
    const effectOf: EffectOf = (chain, packet) => this.#effectOf(walk, chain, packet);
    if (walk.settled === 0) {
      const { chains, settled } = nextChains(walk.rest, walk.packet, effectOf);
      walk.settled = settled;
      if (chains.length > 1) {
        const what = `which of ${chains.map(chainName).join(", ")} is called first: they have one priority`;
        return this.#fork(walk, what, anyFirst(walk, chains));
      }
    }
    const [base, ...rest] = walk.rest;
    if (base === undefined) return false;
    const { onlyIf } = base;
    if (onlyIf !== undefined && !walk.answers.has(onlyIf) && !isIdle(base, walk.packet, effectOf)) {
      return this.#fork(walk, `whether ${onlyIf}`, bothAnswers(walk, onlyIf, `not: ${onlyIf}`));
    }
    Object.assign(walk, { base, rest, settled: walk.settled - 1 });
    if (onlyIf !== undefined && walk.answers.get(onlyIf) === false) return false;
    const because = base.type === "nat" ? whyNotAsked(walk.packet, base.stage) : undefined;
    if (because !== undefined) {
      this.#note(walk, { kind: "not-asked", chain: base, because });
      walk.packet = withTranslation(walk.packet, base.stage);
      return false;
    }
    const isTracked = isAfterTracking(base, walk.packet) || base.chain.length === 0;
    if (isTracked !== walk.packet.isTracked) walk.packet = { ...walk.packet, isTracked };
    this.#note(walk, { kind: "base-chain", chain: base });
    walk.frame = { chain: base.chain, index: 0, caller: undefined };
    return false;
  }

  #effectOf({ stage, answers }: Walk, chain: BaseChain, packet: Packet): readonly Outcome[] {
    const { random: _, ...given } = this.#options;
    const options: WalkOptions = { ...given, record: "ends", isInOrder: true };
    const known = chain.onlyIf === undefined ? answers : new Map(answers).set(chain.onlyIf, true);
    const alone: Program = { ...NO_CHAINS, [stage]: [chain] };
    const machine = new Machine(alone, this.#asked, this.#facts, options, "hook");
    return [...outcomesOf(machine.run(startOf(stage, packet, known)))];
  }

  /** All base chains of the hook have accepted the packet. */
  #leaveStage(walk: Walk): boolean {
    const { stage } = walk;
    if (this.#scope === "hook") return this.#finish(walk, { kind: "sent" });
    walk.packet = withTranslationDecided(walk.packet, stage);
    const { destination } = walk.packet;
    const { observer } = this.#options;
    observer?.asked(this.#facts.about.destination, walk.packet);
    switch (stage) {
      case "socket":
        // A pod that connects to itself sends nothing to the node.
        observer?.asked(whichOf("source", [destination]), walk.packet);
        if (walk.packet.inInterface !== "" && destination === walk.packet.source) return this.#leave(walk);
        this.#enter(walk, firstHook(walk.packet));
        return false;
      case "input":
        return this.#finish(walk, { kind: "delivered" });
      case "forward":
        this.#enter(walk, "postrouting");
        return false;
      case "output":
        this.#sendBy(walk, walk.packet.routedMark);
        this.#enter(walk, "postrouting");
        return false;
      case "prerouting":
        return this.#route(walk, (type) => (type === "local" ? "input" : "forward"));
      case "postrouting":
        // Packets from the node to itself come in again by the loopback interface.
        if (walk.packet.inInterface !== "") return this.#leave(walk);
        return this.#route(walk, (type) => (type === "local" ? "prerouting" : undefined));
    }
  }

  #route(walk: Walk, stageOf: (type: string) => Stage | undefined): boolean {
    const { destination } = walk.packet;
    const type = this.#facts.addressType(destination);
    const question = isLocalQuestion(destination);
    const answer = type === undefined ? walk.answers.get(question) : type === "local";
    const not = `${destination} is no address of the node`;
    if (answer === undefined) return this.#fork(walk, `whether ${question}`, bothAnswers(walk, question, not));
    const to = stageOf(answer ? "local" : "unicast");
    if (to === undefined) return this.#leave(walk);
    this.#note(walk, { kind: "routed", to, because: answer ? question : not });
    if (to === "prerouting") walk.packet = { ...walk.packet, inInterface: "lo", outInterface: "" };
    if (to === "forward") this.#sendBy(walk);
    this.#enter(walk, to);
    return false;
  }

  /** The kernel routes what the node sends before the first hook, and again if its destination has changed. */
  #sendBy(walk: Walk, routedMark = walk.packet.mark): void {
    this.#options.observer?.asked(this.#facts.about.destination, walk.packet);
    walk.packet = { ...walk.packet, outInterface: this.#facts.outInterface(walk.packet.destination), routedMark };
  }

  /** The packet leaves the node. */
  #leave(walk: Walk): boolean {
    return this.#finish(walk, fateOfLeaving(walk.packet, this.#asked, this.#facts));
  }

  #finish(walk: Walk, fate: Fate): boolean {
    walk.node.end = endOf(walk, fate).end;
    return true;
  }
}
