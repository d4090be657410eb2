/**
 * `kube-proxy diff`: what a change of manifests changes for clients and in the rules, or how a kernel, or a dump of one, differs
 * from the wanted rules.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { RELEASES, releaseOf } from "../../contract/config/release.ts";
import type { DumpKind, Inventory } from "../../contract/inspect/dumps/inventory.ts";
import { KERNEL_FEATURES } from "../../contract/rendering.ts";
import { counted } from "../../logging/counted.ts";
import { someOf } from "../../logging/some-of.ts";
import {
  differencesText,
  diffInventories,
  KERNEL_WORDS,
  type OwnedDifference,
  PLAN_WORDS,
} from "../explain/diff-dumps.ts";
import { diffObjects, objectsDiffText } from "../explain/diff-objects.ts";
import { diffSockets } from "../explain/diff-sockets.ts";
import { explainedCluster } from "../explain/explained-cluster.ts";
import { hostAddresses } from "../explain/host-addresses.ts";
import { jsonText, safe } from "../explain/safe-text.ts";
import { DECIDED, decidedLines } from "../explain/standing.ts";
import { wantedInventories } from "../explain/wanted.ts";
import { chosenNode, seenFromSlices } from "./chosen-node.ts";
import { inventoriesOfDumps, inventoriesOfKernel, sysdumpAddresses } from "./diff-rules.ts";
import { contextOf } from "./dump-folder.ts";
import {
  BARE,
  choicesAmong,
  INSPECT_OPTIONS,
  readChoices,
  readMissing,
  warner,
  warnOfOtherMode,
} from "./inspect-options.ts";
import { type FoundConfiguration, OBJECTS_OPTIONS, type ReadObjects, readObjects } from "./objects-input.ts";
import { EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_SUCCESS, type Output, painted, UsageError } from "./output.ts";
import { command, commandLine, FORM_AND_HELP, numberOf, type ReadLine, TEXT_OR_JSON } from "./subcommand-options.ts";

/** The pod network in rules for clients of a cluster IP that are not pods. */
const POD_NETWORK = /(?:! -s|saddr !=) ([\da-f.:]+\/\d+)/;

/** Between two comparisons of `--watch`, unless `--interval` says otherwise. */
const WATCH_SECONDS = 10;

const DIFF = commandLine("kube-proxy diff", { forms: TEXT_OR_JSON, takesWords: true }, [
  `Usage: kube-proxy diff OLD NEW [options]
       kube-proxy diff [-f DIR|FILE|-] --dump FILE [options]
       kube-proxy diff [-f DIR|FILE|-] --kernel [options]

Between two folders or files of manifests: what the change does to clients, and to the rules: on every Node that both have,
or on --node. With --dump or --kernel: what is wanted for the manifests and is not in the kernel, and the other way round,
each with its Service.

`,
  {
    ...OBJECTS_OPTIONS,
    "--dump FILE|DIR|-...": `what iptables-save, ip6tables-save, nft (-j) list ruleset, ipset save or ipvsadm -S -n
        have printed on the node (repeatable), or a sysdump: its archive, or the folder of it,
        with objects, node and configuration; only what the dumps tell about is compared`,
    "--kernel": "ask these tools on this host, and in ebpf mode read the pinned maps; needs root",
    "--all-nodes": "",
    ...INSPECT_OPTIONS,
    "--without LIST": `what the node's kernel or tools lack: ${KERNEL_FEATURES.join(", ")}`,
    "--rules": "between manifests: every rule that changes",
    "--watch": "with --kernel: look again and again, and tell what has changed",
    "--interval SECONDS": `with --watch: between two looks (default ${WATCH_SECONDS})`,
    ...FORM_AND_HELP,
  },
  `
Examples:
  kube-proxy diff main/manifests branch/manifests
  ssh node-a iptables-save | kube-proxy diff -f cluster.yaml --node node-a --dump -
  kubectl kube-proxy diff --kernel --all-nodes      the kubectl plugin alone: which nodes' kernels have something else
  kube-proxy diff -f /etc/manifests --config /etc/kube-proxy.yaml --kernel --watch

Exit status: 0 without differences, 1 with some, 2 when the input cannot be used, or without differences a part of it.
`,
]);

/** @param input what `-` reads. @param signal ends `--watch`. */
export const diff = command(DIFF, async (given, output, input, signal?: AbortSignal) => {
  const options = await readDiffOptions(given);
  const [old, now] = given.positionals;
  if (old !== undefined && now !== undefined) {
    const before = await readObjects({ filename: [old] }, output, input);
    return await betweenObjects(before, await readObjects({ filename: [now] }, output, input), options, output);
  }
  const isThisHost = options.mode === "kernel";
  const objects = await readObjects(options.from, output, input, { isOfKernel: isThisHost });
  const choices = await options.read(options.found ?? objects.configuration);
  const { config, note } = chosenNode(objects.nodes, choices.config, { isThisHost, ...seenFromSlices(objects) });
  if (note !== undefined) output.err(safe(`${note}\n`));
  const own = { ...options, choices: { ...choices, config } };
  return await againstKernel(objects, own, output, input, signal);
});

async function betweenObjects(
  before: ReadObjects,
  after: ReadObjects,
  options: DiffOptions,
  output: Output,
): Promise<number> {
  const { node = options["hostname-override"], form } = options;
  const choices = choicesAmong(after, options.choices);
  // A Node that comes or goes is only on one side.
  const chosen = () => chosenNode([...before.nodes, ...after.nodes], choices.config).config.hostnameOverride;
  const nodes = node === undefined ? undefined : [chosen()];
  const compared = before.nodes.filter(({ name }) => after.nodes.some((one) => one.name === name)).length;
  const result = await diffObjects(before, after, {
    ...{ ...choices, nodes, warn: warner(output, false, choices.warnings) },
    onStep: async (done, total) => await output.progress?.({ what: "Nodes", done, total }),
  });
  const isSame = result.nodes.length + result.nodesAdded.length + result.nodesRemoved.length === 0;
  const isWhole = ![...before.problems, ...after.problems].some(({ severity }) => severity === "error");
  const status = isSame ? (isWhole ? EXIT_SUCCESS : EXIT_BAD_INPUT) : EXIT_FAILURE;
  if (form === "json") output.out(jsonText(result));
  else {
    if (choices.origin !== undefined)
      output.out(painted(`In ${choices.config.mode} mode (${choices.origin}):\n`, output.terminal));
    output.out(
      isSame
        ? `Nothing changes, for clients and in the rules${isWhole ? "" : ", as far as the documents can be used"}.\n`
        : painted(safe(objectsDiffText(result, nodes === undefined ? compared : 1)), output.terminal),
    );
    if (!options.rules) return status;
    for (const { node, rules } of result.nodes) {
      output.out(painted(`${node}:\n${differencesText(rules, PLAN_WORDS)}`, output.terminal));
    }
  }
  return status;
}

async function againstKernel(
  objects: ReadObjects,
  options: DiffOptions,
  output: Output,
  input: NodeJS.ReadableStream,
  signal: AbortSignal | undefined,
): Promise<number> {
  const { choices, missing, watchSeconds } = options;
  const warn = warner(output, objects.lacksNodes, choices.warnings);
  // This host has more than its Node object says, or others.
  const ofHost = () => Promise.all(choices.families.map(hostAddresses)).catch(() => undefined);
  const addresses = options.mode === "kernel" ? (await ofHost())?.flat() : await sysdumpAddresses(options.dump);
  const cluster = await explainedCluster(objects, choices.config, choices.families, warn, { addresses });
  const comparison = cluster.families[0]?.inspection.comparison;
  if (comparison === undefined) {
    throw new UsageError(
      `mode ${choices.config.mode} cannot be compared: its rules name ports that differ after each start`,
    );
  }
  const planned = async (config: KubeProxyConfig) =>
    await wantedInventories(
      await explainedCluster(objects, config, choices.families, () => {}, { addresses }),
      missing,
    );
  const wanted = await planned(choices.config);
  const kinds = comparison.dumps.map(({ kind }) => kind);
  const [family] = choices.families.length === 1 ? choices.families : [];
  const given = { dumps: options.dump, mode: choices.config.mode, family };
  const standing = new Set(objects.standing?.ports.map(({ servicePort }) => servicePort.replace(/\/\w+$/, "")));
  const ofSockets = async () => {
    const { differences, unread } = await diffSockets(cluster);
    for (const line of unread) warn(line);
    // Maps lead where the objects say, also where rules are refused.
    return differences.filter(({ servicePorts: [owner = ""] }) => !standing.has(owner));
  };
  const decided = decidedLines(objects, cluster.families[0]?.node.name ?? "", choices.families);
  let found: ReadonlyMap<DumpKind, Inventory>;
  const look = async () => {
    found =
      options.mode === "kernel"
        ? await inventoriesOfKernel(kinds, cluster, comparison.nftTable ?? "")
        : await inventoriesOfDumps(given, kinds, comparison.nftTable ?? "", input, warner(output));
    const ofRules = diffInventories(wanted, found, cluster);
    return options.mode === "kernel" ? [...ofRules, ...(await ofSockets())] : ofRules;
  };
  /** Another release whose rules these are. */
  const releaseOfRules = async () => {
    if (options.compatibility !== undefined || watchSeconds !== undefined) return undefined;
    for (const { name: compatibility } of RELEASES) {
      if (compatibility === releaseOf(choices.config).name) continue;
      const others = await planned({ ...choices.config, compatibility });
      if (diffInventories(others, found, cluster).length === 0) return compatibility;
    }
    return undefined;
  };
  const first = await look();
  output.out(kernelText(first, options.form, output));
  const ofDaemon = decided.length === 0 ? "" : safe(`${[DECIDED, ...decided].join("\n  ")}\n`);
  if (options.form === "json") output.err(ofDaemon);
  else output.out(painted(ofDaemon, output.terminal));
  const isOtherMode = options.mode === "kernel" && first.length > 0 && (await warnOfOtherMode(choices, warn));
  const differences =
    watchSeconds === undefined ? first : await watch(first, look, { ...options, watchSeconds }, output, signal);
  if (differences.length === 0) return EXIT_SUCCESS;
  const release = await releaseOfRules();
  if (release !== undefined) {
    output.err(
      `With --compatibility ${release} there are no differences: these are rules as that release makes them.\n`,
    );
    return EXIT_FAILURE;
  }
  // Against another mode's rules neither hint would help.
  if (!choices.isBare || isOtherMode) return EXIT_FAILURE;
  output.err(BARE);
  const [, prefix] = POD_NETWORK.exec(JSON.stringify(differences)) ?? [];
  if (prefix !== undefined)
    output.err(`The compared rules take ${prefix} for the pod network: clusterCIDR may be that.\n`);
  return EXIT_FAILURE;
}

/** Compares periodically and prints what has changed since the last comparison; ends with the signal. */
async function watch(
  first: readonly OwnedDifference[],
  look: () => Promise<readonly OwnedDifference[]>,
  { form, watchSeconds }: DiffOptions & { readonly watchSeconds: number },
  output: Output,
  signal: AbortSignal | undefined,
): Promise<readonly OwnedDifference[]> {
  let last = first;
  let complaint = "";
  while (signal?.aborted !== true) {
    try {
      await sleep(watchSeconds * 1_000, undefined, signal === undefined ? {} : { signal });
    } catch {
      break;
    }
    let differences: readonly OwnedDifference[];
    try {
      differences = await look();
    } catch (error) {
      // A tool may fail while the rules change: the next comparison tells.
      if (!(error instanceof UsageError)) throw error;
      if (error.message !== complaint) output.err(safe(`${new Date().toISOString()} ${error.message}\n`));
      complaint = error.message;
      continue;
    }
    complaint = "";
    const isSame = JSON.stringify(differences) === JSON.stringify(last);
    if (!isSame) output.out(`${new Date().toISOString()}\n${kernelText(differences, form, output)}`);
    last = differences;
  }
  return last;
}

function kernelText(differences: readonly OwnedDifference[], form: string, { terminal }: Output): string {
  if (form === "json") return jsonText(differences);
  if (differences.length === 0) return painted("No differences.\n", terminal);
  const services = new Set(differences.flatMap(({ servicePorts }) => servicePorts));
  const whose = services.size === 0 ? "" : `, in ${someOf([...services].sort(), 4)}`;
  const count = counted(differences.length, "difference");
  return painted(`${differencesText(differences, KERNEL_WORDS)}${safe(`${count}${whose}.\n`)}`, terminal);
}

type DiffOptions = Awaited<ReturnType<typeof readDiffOptions>>;

/** @throws UsageError */
async function readDiffOptions({ values, positionals, form }: ReadLine<typeof DIFF>) {
  if (values["all-nodes"])
    throw new UsageError(
      "--all-nodes works with the kubectl plugin alone: kubectl kube-proxy diff --kernel --all-nodes",
    );
  const { filename = [], dump = [], kernel, watch: watches } = values;
  const mode = kernel ? "kernel" : dump.length > 0 ? "dumps" : "objects";
  const hint = "See 'kube-proxy diff --help'.";
  if (kernel && dump.length > 0) throw new UsageError("--kernel and --dump exclude each other", hint);
  if (watches && !kernel) throw new UsageError("--watch needs --kernel: nothing else changes by itself", hint);
  const { interval = String(WATCH_SECONDS) } = values;
  if (values.interval !== undefined && !watches) throw new UsageError("--interval is for --watch", hint);
  const seconds = numberOf("--interval", interval, /^[1-9]\d{0,4}$/, "a number of seconds from 1 to 99999");
  if (mode === "objects" && (positionals.length !== 2 || filename.length > 0)) {
    throw new UsageError("diff needs two folders or files, or -f with --dump or --kernel", hint);
  }
  if (mode !== "objects" && positionals.length > 0) {
    throw new UsageError(
      "diff against a kernel or a dump takes the manifests with -f, or the cluster with --kubeconfig",
      hint,
    );
  }
  const readsInput = [...filename, ...dump, ...positionals].filter((path) => path === "-");
  if (readsInput.length > 1) throw new UsageError("- was given more than once: standard input can be read only once");
  const sysdump = await contextOf(dump);
  const isElsewhere = filename.length > 0 || values.kubeconfig !== undefined || values.context !== undefined;
  const node = values.node ?? values["hostname-override"] ?? sysdump?.node;
  const read = async (found: FoundConfiguration | undefined) => await readChoices({ ...values, node }, found);
  return {
    ...{ ...values, dump, mode, form },
    from: sysdump === undefined || isElsewhere ? values : sysdump.objects,
    /** From a sysdump. */
    found: sysdump?.configuration,
    /** Reads the configuration again, with the one found beside the objects. */
    read,
    choices: await read(undefined),
    missing: readMissing(values.without),
    /** Between two comparisons; undefined: compare once. */
    watchSeconds: watches ? seconds : undefined,
  };
}
