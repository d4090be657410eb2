/**
 * A node with clients, endpoints and a network that loses packets, by seed, around the policy itself: SYNs sent again and answers as the
 * kernel's sets show them, reads each half second, rules in force some time after a decision. Time is in hand.
 */
import { type Evidence, LeavePolicy, type ProbeOutcome, type WatchedPort } from "../../src/model/left-endpoints.ts";
import { seededRandom } from "../../src/trace/seeded-random.ts";

/** When a client sends its SYN again, as Linux does with `tcp_syn_linear_timeouts` 4, and when it gives up. */
const REPEATS_MS = [1_020, 2_050, 3_070, 4_100, 5_100, 7_100];
const GIVE_UP_MS = 8_000;
/** When a server sends its SYN-ACK again. */
const SYN_ACK_REPEATS_MS = [1_000, 3_000];
const READ_MS = 500;
const PROBE_ENDS_MS = 900;
/** The limits of the policy, said here again on purpose. */
const BACK_OFF_MS = 10_000;
const LONGEST_BACK_OFF_MS = 300_000;
/** What the kernel showed until so long before a decision may be its reason. */
const STALE_MS = 3_500;
const BOUNDS = {
  mostLeft: 1 / 2,
  mostSilentNodes: 1 / 2,
  backOffMs: BACK_OFF_MS,
  longestBackOffMs: LONGEST_BACK_OFF_MS,
};

export interface PolicyLike {
  watch(ports: readonly WatchedPort[]): void;
  see(evidence: readonly Evidence[], nowMs: number): void;
  probed(endpoint: string, outcome: ProbeOutcome, nowMs: number): void;
  decide(nowMs: number): ReturnType<LeavePolicy["decide"]>;
}

/** What a run found. */
export interface Outcome {
  readonly lossPercent: number;
  readonly minutes: number;
  /** Milliseconds from the first SYN that was not answered until the rules without a dead endpoint were in force; of busy ones. */
  readonly leftAfterMs: number[];
  /** Endpoints that were left out though they answered. */
  readonly falselyLeft: string[];
  /** What must never be. */
  readonly violations: string[];
  /** How many endpoints were left out, and came back, for any reason. */
  left: number;
  back: number;
  held: number;
}

interface Server {
  readonly text: string;
  readonly node: number;
  readonly rttMs: number;
  readonly serviceMs: number;
  readonly backlog: number;
  readonly allowsProbes: boolean;
  queued: number;
  busyUntilMs: number;
  /** Since when it does not answer; and when that was over last. */
  deadSinceMs: number | undefined;
  aliveSinceMs: number;
  isUnroutable: boolean;
  firstSilentMs: number | undefined;
  isExcused: boolean;
  /** When it was left out, and until when it should have stayed so. */
  leftMs: number | undefined;
  lastLeftMs: number;
  relapses: number;
  backMs: number;
}

interface Port {
  readonly key: string;
  members: Server[];
  readonly perSecond: number;
  readonly clients: readonly { readonly id: number; readonly source: string; readonly isBlocked: boolean }[];
}

interface Connection {
  readonly port: Port;
  readonly client: Port["clients"][number];
  /** The entry of connection tracking. */
  entry: { readonly server: Server; isAnswered: boolean } | undefined;
  isAccepted: boolean;
  isOver: boolean;
}

/** Times in order, with what happens then. */
class Agenda {
  readonly #heap: { readonly atMs: number; readonly run: () => void }[] = [];

  add(atMs: number, run: () => void): void {
    const heap = this.#heap;
    let index = heap.push({ atMs, run }) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (this.#time(parent) <= this.#time(index)) break;
      this.#swap(parent, index);
      index = parent;
    }
  }

  next(): { readonly atMs: number; readonly run: () => void } | undefined {
    const heap = this.#heap;
    if (heap.length <= 1) return heap.pop();
    this.#swap(0, heap.length - 1);
    const first = heap.pop();
    for (let index = 0; ; ) {
      let least = index;
      for (const child of [2 * index + 1, 2 * index + 2]) {
        if (child < heap.length && this.#time(child) < this.#time(least)) least = child;
      }
      if (least === index) return first;
      this.#swap(least, index);
      index = least;
    }
  }

  #time(index: number): number {
    return this.#heap[index]?.atMs ?? Number.POSITIVE_INFINITY;
  }

  #swap(one: number, other: number): void {
    const [a, b] = [this.#heap[one], this.#heap[other]];
    if (a === undefined || b === undefined) return;
    this.#heap[one] = b;
    this.#heap[other] = a;
  }
}

/** Plays one run. `make` makes the policy, and another one after a restart. */
export function simulate(seed: number, make: () => PolicyLike = () => new LeavePolicy(BOUNDS)): Outcome {
  return new Simulation(seed, make).play();
}

class Simulation {
  readonly #random: () => number;
  readonly #make: () => PolicyLike;
  readonly #agenda = new Agenda();
  readonly #outcome: Outcome;
  readonly #endMs: number;
  readonly #loss: number;
  readonly #servers: Server[] = [];
  readonly #ports: Port[] = [];
  readonly #otherNodes: number;
  #policy: PolicyLike;
  #nowMs = 0;
  #life = 0;
  #turn = 0;
  #openProbes = 0;
  #uplinkCutMs: number | undefined;
  #changed = "";
  #observedMs = 0;
  #changedMs = Number.NEGATIVE_INFINITY;
  /** What the sets hold since the last read. */
  readonly #resent = new Map<string, number>();
  readonly #answered = new Set<string>();
  readonly #icmpMs = new Map<string, number>();
  #watched: ReadonlySet<string> = new Set();
  #left: ReadonlyMap<string, ReadonlySet<string>> = new Map();
  #inForce: ReadonlyMap<string, ReadonlySet<string>> = new Map();
  readonly #waiting = new Set<Connection>();

  constructor(seed: number, make: () => PolicyLike) {
    this.#random = seededRandom(seed);
    this.#make = make;
    this.#policy = make();
    const lossPercent = this.#one([0, 0, 1, 3, 4.5, 10, 10, 20]);
    this.#loss = lossPercent / 100;
    this.#endMs = 50_000 + this.#below(40_000);
    this.#otherNodes = 1 + this.#below(6);
    this.#outcome = {
      lossPercent,
      minutes: this.#endMs / 60_000,
      leftAfterMs: [],
      falselyLeft: [],
      violations: [],
      left: 0,
      back: 0,
      held: 0,
    };
    this.#populate();
    this.#plan();
  }

  play(): Outcome {
    this.#policy.watch(this.#watchedPorts());
    for (const port of this.#ports) this.#agenda.add(this.#gap(port), () => this.#arrive(port));
    this.#readAfter(this.#below(READ_MS));
    for (
      let event = this.#agenda.next();
      event !== undefined && event.atMs <= this.#endMs;
      event = this.#agenda.next()
    ) {
      this.#nowMs = event.atMs;
      event.run();
    }
    return this.#outcome;
  }

  // What there is.

  #populate(): void {
    const ports = 1 + this.#below(3);
    for (let index = 0; index < ports; index++) {
      const count = this.#one([1, 2, 2, 3, 3, 4, 4, 6, 9, 14]);
      const perSecond = Math.min(70, count * 0.5 * 40 ** this.#random());
      const allowsProbes = this.#random() < 0.85;
      const isOverloaded = this.#random() < 0.15;
      const own = this.#ports[0];
      const isShared = own !== undefined && this.#random() < 0.3;
      // Two blocked clients where own connections are blocked, too, are two sources.
      const blocked = !isShared && this.#random() < 0.2 ? 1 : 0;
      const members = Array.from({ length: count }, () => this.#server(allowsProbes, isOverloaded, perSecond / count));
      const clients = Array.from({ length: 1 + this.#below(30) + blocked }, (_, id) => ({
        id: index * 100 + id,
        source: String(this.#below(4)),
        isBlocked: id > 0 && id <= blocked,
      }));
      // A second Service of the same pods.
      if (!isShared) this.#servers.push(...members);
      this.#ports.push({
        key: `ns/svc-${index}:http`,
        members: isShared ? [...own.members] : members,
        perSecond,
        clients,
      });
    }
  }

  #server(allowsProbes: boolean, isOverloaded: boolean, perSecond: number): Server {
    const number = this.#servers.length + this.#below(1_000_000);
    return {
      text: `10.${number >> 16}.${(number >> 8) & 255}.${number & 255}:8080`,
      node: this.#below(this.#otherNodes + 1),
      rttMs: 0.2 * 300 ** this.#random(),
      // An overloaded one serves two thirds of what comes, but not less than three a second.
      serviceMs: isOverloaded ? Math.min(333, 1_500 / perSecond) : Math.min(100, 300 / perSecond) * this.#random(),
      backlog: isOverloaded ? 3 + this.#below(8) : 64,
      allowsProbes,
      queued: 0,
      busyUntilMs: 0,
      deadSinceMs: undefined,
      aliveSinceMs: Number.NEGATIVE_INFINITY,
      isUnroutable: false,
      firstSilentMs: undefined,
      isExcused: false,
      leftMs: undefined,
      lastLeftMs: Number.NEGATIVE_INFINITY,
      relapses: 0,
      backMs: Number.NEGATIVE_INFINITY,
    };
  }

  /** Deaths, recoveries, restarts and changes of a slice. */
  #plan(): void {
    const at = () => 8_000 + this.#below(this.#endMs - 8_000);
    const lasts = () => this.#one([2_000, 5_000, 15_000, 40_000, 200_000]);
    for (let count = 1 + this.#below(4); count > 0; count--) {
      const kind = this.#random();
      const startMs = at();
      const endMs = startMs + lasts();
      const victims = (): Server[] => {
        if (kind < 0.6) return [this.#one(this.#servers)];
        const node = this.#below(this.#otherNodes + 1);
        return kind < 0.85 ? this.#servers.filter((server) => server.node === node) : [];
      };
      const some = victims();
      const isUnroutable = kind < 0.1;
      const isUplink = kind >= 0.85;
      // Also those that came since.
      const affected = () => (isUplink ? this.#servers.filter((server) => server.node > 0) : some);
      this.#agenda.add(startMs, () => {
        if (isUplink) this.#uplinkCutMs = this.#nowMs;
        for (const server of affected()) this.#die(server, isUnroutable);
      });
      this.#agenda.add(endMs, () => {
        if (isUplink) this.#endUplink();
        for (const server of affected()) this.#revive(server);
      });
    }
    if (this.#random() < 0.1) this.#agenda.add(at(), () => this.#restart());
    if (this.#random() < 0.2) this.#agenda.add(at(), () => this.#changeSlice());
  }

  #die(server: Server, isUnroutable: boolean): void {
    if (server.deadSinceMs !== undefined) return;
    server.deadSinceMs = this.#nowMs;
    server.isUnroutable = isUnroutable;
    server.firstSilentMs = undefined;
    const ports = this.#ports.filter(({ members }) => members.includes(server));
    const perSecond = ports.reduce((sum, { perSecond, members }) => sum + perSecond / members.length, 0);
    const isIdentifiable = server.allowsProbes || this.#hasTwoSources(ports);
    // Another one that is dead or left out may take its place; and then it is no longer the question how soon.
    server.isExcused =
      perSecond < 5 ||
      !isIdentifiable ||
      server.leftMs !== undefined ||
      this.#nowMs - server.lastLeftMs < LONGEST_BACK_OFF_MS;
  }

  #hasTwoSources(ports: readonly Port[]): boolean {
    // Of few clients, the second one may come late.
    return ports.some(({ clients, perSecond, members }) => {
      const counts = new Map<string, number>();
      for (const { source } of clients) counts.set(source, (counts.get(source) ?? 0) + 1);
      return Math.max(...counts.values()) <= clients.length * 0.6 && perSecond / members.length >= 5;
    });
  }

  #revive(server: Server): void {
    if (server.deadSinceMs === undefined || this.#uplinkCutMs !== undefined) return;
    server.deadSinceMs = undefined;
    server.isUnroutable = false;
    server.aliveSinceMs = this.#nowMs;
    server.queued = 0;
    server.busyUntilMs = this.#nowMs;
  }

  #endUplink(): void {
    // Also for the latest endpoint.
    const isLong =
      this.#uplinkCutMs !== undefined && this.#nowMs - Math.max(this.#uplinkCutMs, this.#changedMs) > 12_000;
    this.#uplinkCutMs = undefined;
    const nodes = this.#usedNodes();
    // Traffic everywhere shows that all nodes are silent.
    const isSeen = this.#ports.every(({ perSecond, members }) => perSecond / members.length > 2 && members.length > 1);
    if (isLong && nodes.size > 1 && isSeen && [...this.#inForce.values()].some((left) => left.size > 0)) {
      this.#outcome.violations.push(`${this.#nowMs}: all other nodes are silent, yet an endpoint is left out`);
    }
  }

  #restart(): void {
    this.#life += 1;
    this.#policy = this.#make();
    this.#openProbes = 0;
    this.#watched = new Set();
    this.#left = new Map();
    this.#inForce = new Map();
    this.#resent.clear();
    this.#answered.clear();
    this.#forgetAll(this.#servers);
    this.#policy.watch(this.#watchedPorts());
    this.#readAfter(READ_MS);
  }

  #forgetAll(servers: readonly Server[]): void {
    for (const server of servers) {
      Object.assign(server, { leftMs: undefined, lastLeftMs: Number.NEGATIVE_INFINITY, relapses: 0, isExcused: true });
    }
  }

  #changeSlice(): void {
    const port = this.#one(this.#ports);
    const before = port.members;
    if (before.length > 1 && this.#random() < 0.5) port.members = before.slice(1);
    else {
      const server = this.#server(true, false, port.perSecond / before.length);
      this.#servers.push(server);
      port.members = [...before, server];
      if (this.#uplinkCutMs !== undefined && server.node > 0) this.#die(server, false);
    }
    this.#forgetAll([...before, ...port.members]);
    this.#policy.watch(this.#watchedPorts());
    this.#changed = port.key;
    this.#changedMs = this.#nowMs;
  }

  #watchedPorts(): WatchedPort[] {
    return this.#ports.map(({ key, members }) => ({
      key,
      members: members.map(({ text, node }) => ({ endpoint: text, nodeName: `node-${node}`, isLocal: node === 0 })),
    }));
  }

  // The network.

  #gap(port: Port): number {
    return this.#nowMs - (Math.log(1 - this.#random()) / port.perSecond) * 1_000;
  }

  #arrive(port: Port): void {
    this.#agenda.add(this.#gap(port), () => this.#arrive(port));
    const connection: Connection = {
      port,
      client: this.#one(port.clients),
      entry: undefined,
      isAccepted: false,
      isOver: false,
    };
    this.#send(connection);
    const startMs = this.#nowMs;
    const repeat = (index: number) => {
      const afterMs = REPEATS_MS[index];
      this.#agenda.add(startMs + (afterMs ?? GIVE_UP_MS), () => {
        if (connection.isOver) return;
        if (afterMs === undefined) this.#end(connection);
        else {
          this.#send(connection);
          repeat(index + 1);
        }
      });
    };
    repeat(0);
  }

  #end(connection: Connection): void {
    connection.isOver = true;
    this.#waiting.delete(connection);
  }

  #send(connection: Connection): void {
    const { client, port } = connection;
    const isRepeated = connection.entry !== undefined;
    if (connection.entry === undefined) {
      const left = this.#inForce.get(port.key);
      const open = port.members.filter(({ text }) => left?.has(text) !== true);
      const server = this.#one(open.length === 0 ? port.members : open);
      connection.isAccepted = false;
      if (server.isUnroutable) {
        this.#refuse(connection, server);
        return;
      }
      connection.entry = { server, isAnswered: false };
      this.#waiting.add(connection);
    }
    const { entry } = connection;
    const { server } = entry;
    if (server.deadSinceMs !== undefined && !client.isBlocked) server.firstSilentMs ??= this.#nowMs;
    if (isRepeated && !entry.isAnswered) this.#count(this.#resent, `${server.text} ${client.source}`);
    if (this.#isLost()) return;
    this.#later(server.rttMs / 2, () => {
      if (client.isBlocked || server.deadSinceMs !== undefined || connection.entry !== entry) return;
      if (!connection.isAccepted && !this.#accept(server)) return;
      connection.isAccepted = true;
      this.#answer(server, () => {
        entry.isAnswered = true;
        if (connection.entry === entry) this.#end(connection);
      });
      for (const afterMs of SYN_ACK_REPEATS_MS) {
        this.#later(afterMs, () => {
          if (!entry.isAnswered)
            this.#answer(server, () => {
              entry.isAnswered = true;
              if (connection.entry === entry) this.#end(connection);
            });
        });
      }
    });
  }

  /** No route on this node: nothing is sent, and the client gets one of few ICMP errors. */
  #refuse(connection: Connection, server: Server): void {
    const { id, source } = connection.client;
    server.firstSilentMs ??= this.#nowMs;
    const key = String(id);
    if (this.#nowMs - (this.#icmpMs.get(key) ?? Number.NEGATIVE_INFINITY) < 1_000) return;
    this.#icmpMs.set(key, this.#nowMs);
    this.#count(this.#resent, `${server.text} ${source}`);
    this.#end(connection);
  }

  /** The server takes a connection into its accept queue, serves it later, and then sends something. */
  #accept(server: Server): boolean {
    if (server.queued >= server.backlog) return false;
    server.queued += 1;
    server.busyUntilMs = Math.max(this.#nowMs, server.busyUntilMs) + server.serviceMs * (0.5 + this.#random());
    const diedMs = server.deadSinceMs;
    this.#agenda.add(server.busyUntilMs, () => {
      if (server.deadSinceMs !== diedMs || server.queued === 0) return;
      server.queued -= 1;
      this.#answer(server, () => {});
    });
    return true;
  }

  #answer(server: Server, arrive: () => void): void {
    if (server.deadSinceMs !== undefined || this.#isLost()) return;
    this.#later(server.rttMs / 2, () => {
      if (this.#watched.has(server.text)) this.#answered.add(server.text);
      arrive();
    });
  }

  #probe(text: string, life: number): void {
    const server = this.#servers.find((one) => one.text === text);
    if (server === undefined) return;
    this.#openProbes += 1;
    let isOver = false;
    const end = (outcome: ProbeOutcome) => {
      if (isOver || life !== this.#life) return;
      isOver = true;
      this.#policy.probed(text, outcome, this.#nowMs);
      this.#openProbes -= 1;
      // The daemon reads when the last one has ended.
      if (this.#openProbes === 0) this.#readAfter(this.#below(10));
    };
    this.#later(server.isUnroutable ? 3 : PROBE_ENDS_MS, () => end(server.isUnroutable ? "unreachable" : "silent"));
    if (server.isUnroutable || !server.allowsProbes || this.#isLost()) return;
    this.#later(server.rttMs / 2, () => {
      if (server.deadSinceMs === undefined && this.#accept(server)) this.#answer(server, () => end("answered"));
    });
  }

  // The daemon.

  #readAfter(afterMs: number): void {
    this.#turn += 1;
    const turn = this.#turn;
    this.#later(afterMs, () => {
      if (turn === this.#turn) this.#read();
    });
  }

  #read(): void {
    const life = this.#life;
    const isStalled = this.#random() < 0.002;
    const evidence: Evidence[] = [...this.#answered].map((endpoint) => ({ kind: "answered", endpoint }));
    for (const [key, count] of this.#resent) {
      const [endpoint = "", source = ""] = key.split(" ");
      evidence.push({ kind: "unanswered", endpoint, source, count });
    }
    this.#resent.clear();
    this.#answered.clear();
    this.#policy.see(evidence, this.#nowMs);
    const { changes, probes, suspects, held } = this.#policy.decide(this.#nowMs);
    const left = this.#afterChanges(changes);
    for (const probe of probes) this.#probe(probe, life);
    this.#outcome.held += held.length;
    this.#check(left, held.length > 0);
    this.#note(changes);
    // One after the other, as the daemon tells the kernel.
    this.#observedMs = Math.max(this.#observedMs + 1, this.#nowMs + 20 + this.#below(80));
    this.#agenda.add(this.#observedMs, () => {
      if (life === this.#life) this.#watched = suspects;
    });
    if (changes.length > 0) this.#later(100 + this.#below(400), () => this.#enforce(left, life));
    if (isStalled) for (const server of this.#servers) server.isExcused = true;
    this.#readAfter(isStalled ? 600 + this.#below(4_000) : READ_MS + this.#below(20));
  }

  /** As the daemon knows it. */
  #afterChanges(changes: ReturnType<PolicyLike["decide"]>["changes"]): ReadonlyMap<string, ReadonlySet<string>> {
    if (changes.length === 0) return this.#left;
    const left = new Map(Array.from(this.#left, ([key, texts]) => [key, new Set(texts)]));
    for (const { kind, key, endpoint } of changes) {
      const texts = left.get(key) ?? new Set();
      if (texts.has(endpoint) === (kind === "left")) this.#outcome.violations.push(`${endpoint} is ${kind} twice`);
      if (kind === "left") texts.add(endpoint);
      else texts.delete(endpoint);
      left.set(key, texts);
    }
    this.#left = left;
    return left;
  }

  #enforce(left: ReadonlyMap<string, ReadonlySet<string>>, life: number): void {
    if (life !== this.#life) return;
    this.#inForce = left;
    const gone = new Set([...left.values()].flatMap((texts) => [...texts]));
    for (const server of this.#servers) {
      if (!gone.has(server.text) || server.deadSinceMs === undefined || server.firstSilentMs === undefined) continue;
      if (!server.isExcused) this.#outcome.leftAfterMs.push(this.#nowMs - server.firstSilentMs);
      server.isExcused = true;
    }
    // Those who wait choose again.
    for (const connection of this.#waiting) {
      const { entry, port } = connection;
      if (entry !== undefined && !entry.isAnswered && left.get(port.key)?.has(entry.server.text))
        connection.entry = undefined;
    }
  }

  // What is wanted of it.

  #check(left: ReadonlyMap<string, ReadonlySet<string>>, isHeld: boolean): void {
    for (const { key, members } of this.#ports) {
      const count = left.get(key)?.size ?? 0;
      if (key === this.#changed && count > 0)
        this.#outcome.violations.push(`${this.#nowMs}: not all of ${key} are forgotten`);
      const most = Math.min(members.length - 1, Math.floor(members.length / (members.length > 10 ? 3 : 2)));
      if (count > most)
        this.#outcome.violations.push(`${this.#nowMs}: ${count} of ${members.length} are left out of ${key}`);
      for (const text of left.get(key) ?? []) {
        if (!members.some((member) => member.text === text))
          this.#outcome.violations.push(`${this.#nowMs}: ${text} is no endpoint`);
      }
    }
    this.#changed = "";
    for (const server of this.#servers) {
      const { firstSilentMs, deadSinceMs, isExcused } = server;
      if (deadSinceMs === undefined || isExcused || firstSilentMs === undefined) continue;
      // One that died or was left out beside it has its place, or none is left out.
      if (isHeld || this.#uplinkCutMs !== undefined || this.#hasCompany(server, left)) server.isExcused = true;
      else if (this.#nowMs - firstSilentMs > 6_000) {
        this.#outcome.leftAfterMs.push(Number.POSITIVE_INFINITY);
        server.isExcused = true;
      }
    }
  }

  #hasCompany(server: Server, left: ReadonlyMap<string, ReadonlySet<string>>): boolean {
    return this.#ports.some(({ key, members }) => {
      if (!members.includes(server)) return false;
      const taken = members.filter(
        (one) => one !== server && (one.deadSinceMs !== undefined || left.get(key)?.has(one.text)),
      );
      const most = Math.min(members.length - 1, Math.floor(members.length / (members.length > 10 ? 3 : 2)));
      return taken.length + 1 > most;
    });
  }

  #note(changes: ReturnType<PolicyLike["decide"]>["changes"]): void {
    const isOwnSilence = this.#isOwnSilence();
    const texts = new Set(changes.filter(({ kind }) => kind === "left").map(({ endpoint }) => endpoint));
    for (const server of this.#servers) {
      if (texts.has(server.text) && server.leftMs === undefined) this.#noteLeft(server);
      const back = changes.find(
        ({ kind, endpoint }) => (kind === "back" || kind === "wrong") && endpoint === server.text,
      );
      if (back !== undefined && server.leftMs !== undefined)
        this.#noteBack(server, isOwnSilence || back.kind === "wrong");
    }
  }

  #noteLeft(server: Server): void {
    this.#outcome.left += 1;
    const isAlive = server.deadSinceMs === undefined && this.#nowMs - server.aliveSinceMs > STALE_MS;
    if (isAlive) this.#outcome.falselyLeft.push(`${Math.round(this.#nowMs)}: ${this.#describe(server)}`);
    if (this.#nowMs - server.backMs > LONGEST_BACK_OFF_MS) server.relapses = 0;
    const backOffMs = Math.min(LONGEST_BACK_OFF_MS, BACK_OFF_MS * 2 ** (server.relapses - 1));
    if (server.relapses > 0 && this.#nowMs - server.lastLeftMs < backOffMs) {
      this.#outcome.violations.push(
        `${this.#nowMs}: ${server.text} is left out again after ${this.#nowMs - server.lastLeftMs} ms`,
      );
    }
    Object.assign(server, { leftMs: this.#nowMs, lastLeftMs: this.#nowMs, relapses: server.relapses + 1 });
  }

  #describe({ text, allowsProbes, backlog, serviceMs, node, ...server }: Server): string {
    const ports = this.#ports
      .filter(({ members }) => members.some((member) => member.text === text))
      .map(({ perSecond, members, clients }) => {
        const blocked = clients.filter(({ isBlocked }) => isBlocked).length;
        return `${(perSecond / members.length).toFixed(2)}/s of ${clients.length} clients, ${blocked} blocked, ${members.length} members`;
      });
    const queue = `${server.queued}/${backlog} served in ${Math.round(serviceMs)} ms`;
    return `${text} on ${node}, ${queue}${allowsProbes ? "" : ", no probes"}; ${ports.join("; ")}`;
  }

  #noteBack(server: Server, mayBeSoon: boolean): void {
    this.#outcome.back += 1;
    const forMs = this.#nowMs - (server.leftMs ?? 0);
    const backOffMs = Math.min(LONGEST_BACK_OFF_MS, BACK_OFF_MS * 2 ** (server.relapses - 1));
    if (!mayBeSoon && forMs < backOffMs) {
      this.#outcome.violations.push(`${this.#nowMs}: ${server.text} is back after ${forMs} ms`);
    }
    Object.assign(server, { leftMs: undefined, backMs: this.#nowMs });
  }

  /** The other nodes with endpoints. */
  #usedNodes(): Set<number> {
    const nodes = this.#ports.flatMap(({ members }) => members.map(({ node }) => node));
    return new Set(nodes.filter((node) => node > 0));
  }

  /** More than half of the other nodes have been silent lately, or cannot have answered since they were left out. */
  #isOwnSilence(): boolean {
    const others = this.#usedNodes();
    const isSilent = ({ deadSinceMs, aliveSinceMs, leftMs }: Server) =>
      deadSinceMs !== undefined || leftMs !== undefined || this.#nowMs - aliveSinceMs < 12_000;
    const silent = new Set(this.#servers.filter(isSilent).map(({ node }) => node));
    silent.delete(0);
    return silent.size > 1 && silent.size > others.size / 2;
  }

  // Chance.

  #isLost(): boolean {
    return this.#loss > 0 && this.#random() < this.#loss;
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  #one<T>(list: readonly T[]): T {
    const item = list[this.#below(list.length)];
    if (item === undefined) throw new Error("there is nothing to choose from");
    return item;
  }

  #later(afterMs: number, run: () => void): void {
    this.#agenda.add(this.#nowMs + afterMs, run);
  }

  #count(counts: Map<string, number>, key: string): void {
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
}
