/**
 * `kube-proxy prove`: whether rules do with every packet what the objects of a cluster ask for, or what other rules do. Packets
 * fall into finitely many classes, and one of each is led through both.
 */
import type { ClusterRecords } from "../cluster/manifests/index.ts";
import type { ProvedVariant } from "../dataplane/dataplane.ts";
import { DEVIATIONS } from "../dataplane/deviations.ts";
import { MODES, modeNamed } from "../dataplane/registry.ts";
import { NoRulesError } from "../explain/planned-rules.ts";
import { jsonText, safe } from "../explain/safe-text.ts";
import { offlineNode } from "../inspect/offline-node.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import { familyOf, parseIpAddress } from "../net/ip.ts";
import { type Proof, prove, type Side } from "../prove/proof.ts";
import { planSide, rulesSide, specificationSide } from "../prove/sides.ts";
import { endText } from "../trace/packet.ts";
import { dumpFiles } from "./dump-folder.ts";
import { EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_SUCCESS, UsageError } from "./exit.ts";
import { INSPECT_FLAGS, INSPECT_FLAGS_HELP, type InspectChoices, readChoices, warner } from "./inspect-options.ts";
import { inspecting } from "./inspecting.ts";
import { OBJECTS_FLAGS, OBJECTS_FLAGS_HELP, readObjects } from "./objects-input.ts";
import type { Output } from "./output.ts";
import { parseOptions } from "./subcommand-options.ts";
import { nearestWord } from "./suggestion.ts";
import { dumpedRules } from "./trace-rules.ts";

const FORMS = ["text", "json"];
const VARIANTS: readonly (ProvedVariant & { readonly mode: string })[] = MODES.flatMap(({ name, proved = [] }) =>
  proved.map((variant) => ({ ...variant, mode: name })),
);
const NAMES = VARIANTS.map(({ name }) => name);

export const PROVE_USAGE = `Usage: kube-proxy prove -f DIR|FILE|- [--modes LIST] [options]
       kube-proxy prove --kubeconfig FILE [--modes LIST] [options]
       kube-proxy prove (-f DIR|FILE|- | --kubeconfig FILE) (--dump FILE|DIR|- | --kernel) [options]
       kube-proxy prove --dump FILE|DIR --against FILE|DIR --local ADDRESS... [options]

Says whether rules do with every packet what the Services ask for: not with samples, with all of them. Rules compare
packets with finitely many values, so packets fall into finitely many classes; one of each is led through both sides.
The other side is a specification written from Kubernetes' documents, or other rules. Where the two differ, a packet is
shown, and its way. Nothing is sent.

${OBJECTS_FLAGS_HELP}
      --modes LIST             whose rules are planned and compared: ${NAMES.join(", ")} (default all)
      --dump FILE|DIR|-        rules of a node instead of a plan, of any version of any kube-proxy, as for trace (repeatable)
      --against FILE|DIR|-     other rules instead of the specification (repeatable)
      --kernel                 the rules of this node's kernel instead of a plan; needs root
      --as MODE                whose documented differences the rules of --dump or --kernel have: one of the names above
      --local ADDRESS          an address of the node, where no objects say it (repeatable)
      --all-nodes              every Node of the objects
${INSPECT_FLAGS_HELP}
      --differences            what each mode does otherwise than the documents say, and is compared with, and end
  -o, --output FORM            ${FORMS.join(", ")} (default text)

Examples:
  kube-proxy prove -f examples --node node-a
  kube-proxy prove -f cluster.yaml --node node-a --dump iptables.txt --as iptables
  kube-proxy prove --dump before.json --against after.json --local 192.168.0.2

Exit status: 0 when both do the same with all packets, 1 when not, 2 when that cannot be proved or the input cannot be used.
`;

/** @param argv without the word `prove`. @param input what `-` reads. @returns the exit status. */
export async function proveCommand(
  argv: readonly string[],
  output: Output,
  input: NodeJS.ReadableStream = process.stdin,
): Promise<number> {
  return await inspecting(output, async () => {
    const options = readOptions(argv);
    if (options.help === true) {
      output.out(PROVE_USAGE);
      return EXIT_SUCCESS;
    }
    if (options.differences) {
      for (const variant of options.variants) output.out(await differencesText(variant, options));
      return EXIT_SUCCESS;
    }
    const answers: Answer[] = [];
    for await (const answer of answersTo(options, output, input)) {
      answers.push(answer);
      if (options.output === "text") output.out(safe(answerText(answer)));
    }
    if (options.output === "json") output.out(jsonText(answers.map(answerData)));
    if (answers.some(({ proof }) => proof.unprovable !== undefined)) return EXIT_BAD_INPUT;
    return answers.some(({ proof }) => proof.differing > 0) ? EXIT_FAILURE : EXIT_SUCCESS;
  });
}

interface Answer {
  readonly node: string | undefined;
  readonly family: IpFamily;
  readonly sides: readonly [Side, Side];
  readonly proof: Proof;
}

type Options = ReturnType<typeof readOptions>;

async function* answersTo(options: Options, output: Output, input: NodeJS.ReadableStream): AsyncGenerator<Answer> {
  const { dump = [], against = [], kernel = false, local } = options;
  const isOfObjects =
    options.filename !== undefined || options.kubeconfig !== undefined || options.context !== undefined;
  if (against.length > 0) {
    const own = local.map(addressOf);
    for (const family of new Set(own.map(familyOf))) {
      const sides = [await dumpSide(dump, family, own, input), await dumpSide(against, family, own, input)] as const;
      yield { node: undefined, family, sides, proof: prove(family, ofFamily(own, family), sides) };
    }
    return;
  }
  if (!isOfObjects && (dump.length > 0 || kernel))
    throw new UsageError(
      "what the rules are to do is not known: give the objects with -f or --kubeconfig, or --against",
    );
  const objects = await readObjects(options, output, input);
  const first = await readChoices(options);
  const nodes = options["all-nodes"] ? objects.nodes.map(({ name }) => name) : [first.config.hostnameOverride];
  if (nodes.length === 0) throw new UsageError("--all-nodes needs Nodes, and there are none");
  for (const node of nodes) {
    requireNode(objects, node);
    yield* answersOn(objects, node === "" ? options : { ...options, node }, output, input);
  }
}

/** @throws UsageError */
function requireNode({ nodes }: ClusterRecords, name: string): void {
  const names = nodes.map((node) => node.name);
  if (name === "" && names.length < 2) return;
  if (name === "")
    throw new UsageError(`which node? --node NAME, one of ${names.slice(0, 10).join(", ")}; or --all-nodes`);
  if (names.includes(name)) return;
  const nearest = nearestWord(name, names);
  throw new UsageError(
    `no Node "${name}" is among the objects`,
    nearest === undefined ? undefined : `Did you mean ${nearest}?`,
  );
}

async function* answersOn(
  objects: ClusterRecords,
  options: Options,
  output: Output,
  input: NodeJS.ReadableStream,
): AsyncGenerator<Answer> {
  const { dump = [], kernel = false } = options;
  const warn = warner(output);
  for (const variant of options.variants) {
    const { config, families } = await choicesFor(variant, options);
    for (const family of families) {
      const node = offlineNode(objects, config, family, warn);
      const own = node.hostAddresses;
      if (
        !objects.nodes.some(
          (one) => one.name === node.name && one.addresses.some(({ address }) => isOf(address, family)),
        )
      )
        continue;
      const rules =
        dump.length > 0
          ? await dumpSide(dump, family, own, input)
          : kernel
            ? await kernelSide(family, own)
            : await planSide(variant.name, node, config).catch(refuse);
      const specification = specificationSide(objects, node, config, variant.deviations(config));
      const sides = [specification, rules] as const;
      yield { node: node.name, family, sides, proof: prove(family, own, sides) };
    }
  }
}

async function choicesFor({ mode, choose }: Options["variants"][number], options: Options): Promise<InspectChoices> {
  return await readChoices({ ...options, mode }, choose);
}

function refuse(error: unknown): never {
  throw error instanceof NoRulesError ? new UsageError(error.message) : error;
}

async function dumpSide(
  paths: readonly string[],
  family: IpFamily,
  own: readonly IpAddress[],
  input: NodeJS.ReadableStream,
): Promise<Side> {
  const files = await dumpFiles(paths, (name) => name === "nft.txt");
  const { name, dumps } = await dumpedRules(
    files.map(({ path }) => path),
    own,
    family,
    input,
  );
  return rulesSide(name, dumps, family, ofFamily(own, family));
}

async function kernelSide(family: IpFamily, own: readonly IpAddress[]): Promise<Side> {
  const { kernelRules } = await import("./trace-kernel.ts");
  const { name, dumps, addresses, routes } = await kernelRules(family, own);
  return rulesSide(name, dumps, family, addresses, routes);
}

function isOf(text: string, family: IpFamily): boolean {
  const address = parseIpAddress(text);
  return address !== undefined && familyOf(address) === family;
}

function ofFamily(addresses: readonly IpAddress[], family: IpFamily): IpAddress[] {
  return addresses.filter((address) => familyOf(address) === family);
}

function addressOf(text: string): IpAddress {
  const address = parseIpAddress(text);
  if (address === undefined) throw new UsageError(`--local must be an IP address, got "${text}"`);
  return address;
}

function answerText({ node, family, sides, proof }: Answer): string {
  const [one, other] = sides;
  const where = node === undefined ? family : `${node}, ${family}`;
  const { classes, differing, examples, unprovable } = proof;
  const time = `${proof.seconds.toFixed(1)} s`;
  const head = `${other.name} and ${one.name} (${where})`;
  if (unprovable !== undefined) return `${head}: cannot be proved: ${unprovable}\n`;
  if (differing === 0) return `${head}: equal for all packets: ${classes} classes, ${time}\n`;
  const lines = [`${head}: NOT equal: ${differing} of ${classes} classes of packets, ${time}`];
  for (const { packet, fates } of examples) {
    lines.push(`  ${packetText(packet)}`, `    ${one.name}: ${fates[0]}`, `    ${other.name}: ${fates[1]}`);
  }
  const [first] = examples;
  if (first !== undefined) {
    lines.push("", "The first of them:", ...indented(one.why(first.packet)), ...indented(other.why(first.packet)));
  }
  return `${lines.join("\n")}\n`;
}

function indented(text: string): string[] {
  return text
    .trimEnd()
    .split("\n")
    .map((line) => `  ${line}`);
}

function packetText({
  protocol,
  source,
  sourcePort,
  destination,
  destinationPort,
  inInterface,
}: Counterexamples): string {
  const from = inInterface === "" ? "a process of the node" : `a client by ${inInterface}`;
  return `${protocol} from ${from}, ${endText(source, sourcePort)}, to ${endText(destination, destinationPort)}`;
}

type Counterexamples = Proof["examples"][number]["packet"];

function answerData({ node, family, sides, proof }: Answer) {
  const [one, other] = sides;
  return {
    node: node ?? null,
    family,
    sides: [one.name, other.name],
    result: proof.unprovable !== undefined ? "cannot be proved" : proof.differing > 0 ? "different" : "equal",
    because: proof.unprovable ?? null,
    classes: proof.classes,
    differing: proof.differing,
    seconds: proof.seconds,
    examples: proof.examples.map(({ packet, fates }) => {
      const { protocol, source, sourcePort, destination, destinationPort, inInterface } = packet;
      return {
        packet: { protocol, source, sourcePort, destination, destinationPort, inInterface },
        fates,
        why: [one.why(packet), other.why(packet)],
      };
    }),
  };
}

async function differencesText(variant: Options["variants"][number], options: Options): Promise<string> {
  const { config } = await choicesFor(variant, options);
  const lines = variant.deviations(config).map((deviation) => `  ${deviation}: ${DEVIATIONS[deviation]}`);
  return `${[`${variant.name}:`, ...(lines.length > 0 ? lines : ["  none"])].join("\n")}\n`;
}

function readOptions(argv: readonly string[]) {
  const values = parseOptions("kube-proxy prove", argv, {
    ...INSPECT_FLAGS,
    ...OBJECTS_FLAGS,
    modes: { type: "string" },
    dump: { type: "string", multiple: true },
    against: { type: "string", multiple: true },
    kernel: { type: "boolean" },
    as: { type: "string" },
    local: { type: "string", multiple: true, default: [] },
    "all-nodes": { type: "boolean", default: false },
    differences: { type: "boolean", default: false },
    output: { type: "string", short: "o", default: "text" },
  });
  const { dump = [], against = [], kernel = false } = values;
  if (!FORMS.includes(values.output))
    throw new UsageError(`--output must be ${FORMS.join(" or ")}, got "${values.output}"`);
  if (kernel && dump.length > 0) throw new UsageError("--kernel and --dump are two places of rules: give one");
  if (against.length > 0 && dump.length === 0)
    throw new UsageError("--against needs --dump: the rules that it is compared with");
  if (against.length > 0 && values.local.length === 0)
    throw new UsageError("two dumps do not say which addresses are the node's: give them with --local");
  const isOfRules = dump.length > 0 || kernel;
  if (isOfRules && values["all-nodes"]) throw new UsageError("rules are those of one node: leave --all-nodes out");
  if (isOfRules && values.modes !== undefined)
    throw new UsageError("--modes names plans; for rules of a node it is --as MODE");
  const wanted = isOfRules
    ? [values.as ?? values.mode ?? modeNamed("iptables").name]
    : (values.modes ?? NAMES.join(",")).split(",");
  return { ...values, variants: wanted.map(variantNamed) };
}

/** @throws UsageError */
function variantNamed(word: string): (typeof VARIANTS)[number] {
  const name = word.trim();
  const found = VARIANTS.find((variant) => variant.name === name);
  if (found !== undefined) return found;
  const nearest = nearestWord(name, NAMES);
  throw new UsageError(
    `"${name}" is none of the modes that can be proved: ${NAMES.join(", ")}`,
    nearest === undefined ? undefined : `Did you mean ${nearest}?`,
  );
}
