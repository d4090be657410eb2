/**
 * `kube-proxy trace`: what happens to a packet on a node, rule by rule, in the plan for manifests, in dumps of any node, or in this
 * node's kernel; nothing is sent.
 */

import { CLIENT_KINDS } from "../../contract/inspect/client-place.ts";
import { deviceAddresses } from "../../trace/dump/device-addresses.ts";
import { unwalkedIn } from "../../trace/dump/unwalked.ts";
import { walkDumps } from "../../trace/dump/walk-dumps.ts";
import { nodeFacts } from "../../trace/facts.ts";
import { TooManyWaysError } from "../../trace/netfilter/tree.ts";
import { newPacket } from "../../trace/packet.ts";
import { traceData } from "../../trace/report/json.ts";
import { type TraceReport, traceText } from "../../trace/report/text.ts";
import { seededRandom } from "../../trace/seeded-random.ts";
import { jsonText } from "../explain/safe-text.ts";
import { withoutUrl } from "../explain/target.ts";
import { chosenNode } from "./chosen-node.ts";
import { contextOf, dumpFiles, type SysdumpContext } from "./dump-folder.ts";
import { choicesAmong, INSPECT_OPTIONS, readChoices, warner } from "./inspect-options.ts";
import type { FoundConfiguration, ReadObjects } from "./objects-input.ts";
import { EXIT_SUCCESS, type Output, painted, UsageError } from "./output.ts";
import {
  command,
  commandLine,
  FORM_AND_HELP,
  numberOf,
  type ReadLine,
  TEXT_OR_JSON,
  untilInterrupted,
} from "./subcommand-options.ts";
import { type ParsedTarget, packetQuestion, parseTarget } from "./trace-packet.ts";
import { inNamespace, mentionedPods, needsObjects, type ResolvedEnds, resolvePods } from "./trace-pods.ts";
import { dumpedRules, localAddress, placesOn, rulesForObjects, type TracedRules } from "./trace-rules.ts";

const TRACE = commandLine("kube-proxy trace", { forms: TEXT_OR_JSON, takesWords: true }, [
  `Usage: kube-proxy trace --from CLIENT --to ADDRESS:PORT[/PROTOCOL] -f DIR|FILE|- [options]
       kube-proxy trace --from CLIENT --to ADDRESS:PORT[/PROTOCOL] --kubeconfig FILE --node NAME [options]
       kube-proxy trace --from CLIENT --to ADDRESS:PORT[/PROTOCOL] --dump FILE|- [options]
       kube-proxy trace --from CLIENT --to ADDRESS:PORT[/PROTOCOL] [options]
       kube-proxy trace --live [--from CLIENT] --to ADDRESS:PORT[/PROTOCOL] [options]

Follows a packet through every hook and rule of a node, and says what matched and why, and what becomes of it: which
endpoint with which source, refused or dropped by which rule. Where chance decides, every way is shown with its odds;
where something is not known, both. Nothing is sent. With --live, the kernel itself says what it does with real packets,
beside what is simulated for them.

`,
  {
    "--from CLIENT": `ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT; or pod, node, outside, with :PORT behind it;
        or a pod by its name, NAMESPACE/NAME or NAMESPACE/NAME:PORT`,
    "--to ADDRESS:PORT/PROTO": `where the packet goes; tcp (default), udp, sctp. NAMESPACE/NAME:PORT/PROTO is a pod,
        or a Service at its cluster IP: shop/web:http, web.shop.svc.cluster.local:80;
        with objects a port may be its name: 10.96.0.10:http`,
    "-n, --namespace NAME": "of what --from and --to name without one",
    "--in INTERFACE": "where it comes in (default: not known, for packets of the node itself none)",
    "--mark NUMBER": "the packet's mark (default 0)",
    "--state STATE": "of its connection: new (default), established, related, invalid, untracked",
    "--seed NUMBER": "takes one way at each random choice, the same for the same number",
    "--new-client": "of a client that session affinity does not remember",
  },
  "\nRules, of one of these; without any, those in this node's kernel are walked, which needs root:\n",
  {
    "-f, --filename DIR|FILE|-...": "manifests, as in render: the plan for them is walked (repeatable)",
    "--kubeconfig FILE": "a cluster: the plan for it is walked",
    "--context NAME": "the context in it (default: the current one), or in the kubeconfig that kubectl would read",
    "--mode MODE": INSPECT_OPTIONS["--mode MODE"],
    "--node NAME": "the node to plan for (default: the only Node, this host, or the first by name)",
    "--hostname-override NAME": "",
    "--config FILE": INSPECT_OPTIONS["--config FILE"],
    "--compatibility RELEASE": INSPECT_OPTIONS["--compatibility RELEASE"],
    "--dump FILE|DIR|-...": `what iptables-save, ip6tables-save, nft (-j) list ruleset, ipset save or ipvsadm -S -n print
        on a node (repeatable), or a sysdump, packed or not; of other
        programs' rules what is not understood is shown as such. Of Windows, what render prints`,
    "--kernel": `this node's kernel, also where --kubeconfig is given; the pinned maps of ebpf mode are
        read, too (--config where pinFolder is set)`,
    "--local ADDRESS...": `an address of the node; with --dump all of them should be given, unless it is a sysdump (repeatable)
        Names of pods are looked up in -f, or in the cluster: that of --kubeconfig, else that of kubectl`,
  },
  "\n",
  {
    "--live": `waits for real packets of the flow, and shows their way through this node's kernel: nftables,
        and the nft variant of iptables. Needs root, and a kernel from 5.12 on; what it installs
        goes with the command`,
    "--count NUMBER": "with --live: how many packets (default 1)",
    "--timeout SECONDS": "with --live: how long (default 30)",
  },
  "\n",
  {
    "--all": "every way through the rules, step by step (default: 20 lines)",
    "-v, --verbose": "these, with the rules that do not match, and why",
    ...FORM_AND_HELP,
  },
  `
Examples:
  kube-proxy trace --from pod --to 10.96.0.10:80 -f examples --node node-a
  kube-proxy trace --from shop/web-1 --to 10.96.0.53:53/udp -f examples --node node-a
  kubectl kube-proxy trace --from shop/web-1 --to 10.96.0.10:80 --node node-a --context prod
  kube-proxy trace --from 198.51.100.7 --in eth0 --to 192.168.0.2:30080 --dump iptables.txt --local 192.168.0.2
  sudo kube-proxy trace --from node --to 10.96.0.10:80
  sudo kube-proxy trace --live --to 10.96.0.10:80
  nft list ruleset | kube-proxy trace --from 10.0.0.9 --to 10.96.0.10:53/udp --dump - --local 192.168.0.2

Exit status: 0; with --live 1 when no packet came, or when the kernel did something else than the simulation; 2 when the packet cannot be understood or the rules cannot be used.
`,
]);

type TraceValues = ReadLine<typeof TRACE>["values"];

/** @param input what `-f -` or `--dump -` reads. @param signal ends `--live`. @default Ctrl-C */
export const trace = command(TRACE, async ({ values, positionals, form }, output, input, signal?: AbortSignal) => {
  refuseWords(positionals, values);
  const options = readOptions(values);
  const sysdump = await contextOf(options.dump ?? []);
  const objects = await objectsFor(options, sysdump, output, input);
  const stated = { ...options.ends, fromNode: undefined, notes: [] };
  const ends = objects === undefined ? stated : resolvePods(options.ends, objects);
  if (options.live !== undefined) {
    const { liveTrace } = await import("./trace-live.ts");
    const { from, to } = ends;
    const live = { ...options.live, target: parseTarget(to), packet: { ...options, from, to }, form };
    if (signal !== undefined) return await liveTrace(live, output, signal);
    return await untilInterrupted((interruption) => liveTrace(live, output, interruption));
  }
  const report = await traced(options, { objects, ends, sysdump }, input, warner(output));
  output.out(
    form === "json"
      ? jsonText(traceData(report))
      : painted(traceText(report, values.all || values.verbose), output.terminal),
  );
  return EXIT_SUCCESS;
});

type TraceOptions = ReturnType<typeof readOptions>;

/** What was read from a cluster, and the packet's ends in it. */
interface Surroundings {
  readonly objects: ReadObjects | undefined;
  readonly ends: ResolvedEnds;
  /** From the dumps, if one of them is a sysdump. */
  readonly sysdump: SysdumpContext | undefined;
}

/** The objects to plan for, or to find pods in; undefined if neither is needed. @throws UsageError */
async function objectsFor(
  options: TraceOptions,
  sysdump: SysdumpContext | undefined,
  output: Output,
  input: NodeJS.ReadableStream,
): Promise<ReadObjects | undefined> {
  const { ends, namespace, isPlan } = options;
  const pods = mentionedPods(ends);
  const [first = needsObjects(ends.to) ? ends.to : undefined] = pods;
  if (!isPlan && first === undefined && sysdump === undefined) return undefined;
  const { readObjects } = await import("./objects-input.ts");
  if (sysdump !== undefined) return await readObjects(sysdump.objects, output, input, { pods });
  if (first === undefined || isPlan) return await readObjects(options, output, input, { pods, namespace });
  try {
    return await readObjects({ ...options, filename: undefined }, output, input, { pods, isForPods: true });
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(
      `${first} cannot be looked up: ${error.message}`,
      "Give its address, or a cluster with --kubeconfig.",
    );
  }
}

async function traced(
  options: TraceOptions,
  { objects, ends, sysdump }: Surroundings,
  input: NodeJS.ReadableStream,
  warn: (message: string) => void,
): Promise<TraceReport> {
  const { from, to, fromNode, notes } = ends;
  const target = parseTarget(to);
  const rules = await rulesFor(options, { objects, sysdump, target }, input, warn);
  const addresses = [...rules.addresses, ...options.local, ...deviceAddresses(rules.dumps)];
  const facts = nodeFacts({ ...rules, addresses, isComplete: rules.knowsAddresses });
  const question = packetQuestion({ ...options, from, to }, target, {
    placeOf: rules.placeOf,
    isLocal: (ip) => facts.addressType(ip) === "local",
    podAt: (address) => rules.podAt?.(address, fromNode),
  });
  const knowsClients = options.isNewClient || rules.knowsClients;
  const packet = newPacket(question);
  const { seed, verbose: isVerbose } = options;
  try {
    const root = walkDumps(rules.dumps, packet, facts, {
      knowsClients: options.isNewClient,
      knowsDynamicSets: knowsClients,
      record: isVerbose ? "all" : "matches",
      ...(seed === undefined ? {} : { random: seededRandom(seed) }),
    });
    const unwalked = unwalkedIn(rules.dumps, target.family).map((what) => `${what}: this is not walked`);
    return {
      packet,
      rules: rules.name,
      notes: [...notes, ...rules.notes, ...unwalked],
      root,
    };
  } catch (error) {
    if (error instanceof TooManyWaysError) throw new UsageError(error.message);
    throw error;
  }
}

const UNDECIDED =
  "whether clients other than pods are masqueraded at cluster IPs, and get answers, depends on clusterCIDR, which is not known (--config)";

async function rulesFor(
  { isPlan, dump: dumps, local, config, compatibility, mode, node, verbose }: TraceOptions,
  { objects, sysdump, target }: Omit<Surroundings, "ends"> & { readonly target: ParsedTarget },
  input: NodeJS.ReadableStream,
  warn: (message: string) => void,
): Promise<TracedRules> {
  const read = async (found?: FoundConfiguration, foundNode?: string) => {
    const choices = await readChoices({ config, mode, compatibility, node: node ?? foundNode }, found);
    for (const said of choices.warnings) warn(said);
    return choices;
  };
  if (isPlan && objects !== undefined) {
    const end = { ...target, showsEveryRule: verbose };
    const choices = { ...(await read(objects.configuration)), families: [target.family] };
    const { config: own, origin, isBare } = choicesAmong(objects, choices);
    const chosen = chosenNode(objects.nodes, own, { slices: objects.nodes.length === 0 ? objects.endpointSlices : [] });
    const rules = await rulesForObjects(objects, chosen.config, end, (message) => {
      if (chosen.note === undefined || !message.startsWith("no Node ")) warn(message);
    });
    const name = origin === undefined ? rules.name : rules.name.replace(" for ", ` (${origin}) for `);
    return {
      ...rules,
      name,
      notes: [chosen.note ?? [], isBare && origin?.includes("clusterCIDR") ? UNDECIDED : [], rules.notes].flat(),
    };
  }
  const { family } = target;
  if (dumps === undefined) {
    const settings = (await read()).config;
    const { kernelRules, withLiveSockets } = await import("./trace-kernel.ts");
    return await withLiveSockets(await kernelRules(family, local), family, settings);
  }
  const files = await dumpFiles(dumps, (name) => name === "nft.txt");
  const rules = await dumpedRules(files, local, family, input);
  if (sysdump === undefined || objects === undefined) return rules;
  const { config: settings } = await read(sysdump.configuration, sysdump.node);
  return { ...rules, placeOf: placesOn(objects, chosenNode(objects.nodes, settings).config, family) };
}

/** @throws UsageError for a word without a flag, with the flag that it probably needs. */
function refuseWords([word, other]: readonly string[], { from, to, live }: TraceValues): void {
  if (word === undefined) return;
  const isTarget = to === undefined && !CLIENT_KINDS.some((position) => position === word);
  const [target, client] = isTarget ? [word, other ?? "pod"] : [other, word];
  const flags = [to === undefined && target && `--to ${target}`, from === undefined && !live && `--from ${client}`];
  const meant = flags.filter(Boolean).join(" ") || undefined;
  const help = "see 'kube-proxy trace --help'.";
  const hint = meant === undefined ? `S${help.slice(1)}` : `Did you mean ${meant}? Otherwise ${help}`;
  throw new UsageError(`kube-proxy trace takes flags only, got "${word}"`, hint);
}

function readOptions(values: TraceValues) {
  const { from, filename, dump, seed, live } = values;
  const to = values.to && withoutUrl(values.to).replace(/^localhost(?=:|$)/i, "127.0.0.1");
  const missing = (what: string) => new UsageError(`trace needs to know ${what}`, "See 'kube-proxy trace --help'.");
  if (to === undefined) throw missing("where the packet goes: --to ADDRESS:PORT, or a Service");
  if (from === undefined && !live)
    throw missing(`whose packet it is: --from ${CLIENT_KINDS.join(", ")}, an address or a pod`);
  if (filename !== undefined && dump !== undefined) {
    throw new UsageError("trace walks either the plan for manifests (-f) or dumps (--dump), not both");
  }
  if (!live && (values.count !== undefined || values.timeout !== undefined)) {
    throw new UsageError("--count and --timeout are for --live");
  }
  const chance = seed === undefined ? undefined : numberOf("--seed", seed, /^\d{1,15}$/);
  // Reports errors in `--to` before anything is read.
  if (!needsObjects(to)) parseTarget(to);
  const { kubeconfig, context, kernel } = values;
  const node = values.node ?? values["hostname-override"];
  if (kernel && (filename !== undefined || dump !== undefined)) {
    throw new UsageError("--kernel walks what this node's kernel has: leave -f and --dump out");
  }
  // For a kubectl plugin, and if a node is named, the cluster is meant, not this host's kernel.
  const isNamed = process.env.KUBE_PROXY_TS_PLUGIN === "1" || values.node !== undefined;
  const isOfCluster = kubeconfig !== undefined || context !== undefined || isNamed;
  return {
    ...values,
    state: values.state ?? "new",
    ends: inNamespace({ from, to }, values.namespace),
    /** Whether the rules are a plan for objects. */
    isPlan: filename !== undefined || (isOfCluster && !live && !kernel && dump === undefined),
    live: live ? liveChoices(values) : undefined,
    seed: chance,
    isNewClient: values["new-client"],
    local: (values.local ?? []).map(localAddress),
    node,
  };
}

/** @throws UsageError */
function liveChoices({ filename, dump, seed, count = "1", timeout = "30" }: TraceValues) {
  if (filename !== undefined || dump !== undefined || seed !== undefined) {
    throw new UsageError("--live traces in this node's kernel: -f, --dump and --seed are for simulations alone");
  }
  return {
    count: numberOf("--count", count, /^[1-9]\d{0,3}$/, "a number from 1 to 9999"),
    timeoutSeconds: numberOf("--timeout", timeout, /^[1-9]\d{0,5}$/, "a number of seconds from 1 to 999999"),
  };
}
