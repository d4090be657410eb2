/**
 * `kube-proxy prove`: whether rules treat every packet as the objects of a cluster require, or as other rules do. Packets
 * fall into finitely many classes, and one packet of each class is walked through both.
 */
import { isDeepStrictEqual } from "node:util";
import { DEVIATIONS } from "../../contract/deviations.ts";
import { type OfflineNode, offlineNode } from "../../contract/inspect/offline-node.ts";
import { standingOn } from "../../contract/inspect/offline-state.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress } from "../../net/ip.ts";
import { jsonText, safe } from "../explain/safe-text.ts";
import { decidedLines } from "../explain/standing.ts";
import { type Proof, proving, RANGE_NOT_GIVEN } from "../prove/proof.ts";
import { guardsLoopback, planSide, specificationSide } from "../prove/sides.ts";
import { besideStanding } from "../prove/standing-places.ts";
import { chosenNode, seenFromSlices } from "./chosen-node.ts";
import { contextOf } from "./dump-folder.ts";
import { BARE, INSPECT_OPTIONS, type InspectChoices, readChoices, warner } from "./inspect-options.ts";
import { type FoundConfiguration, OBJECTS_OPTIONS, type ReadObjects, readObjects } from "./objects-input.ts";
import { EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_SUCCESS, type Output, painted, UsageError } from "./output.ts";
import { type Answer, answerData, answerText, resultOf } from "./prove-answer.ts";
import { type FoundRules, foundInDumps, foundInKernel, VARIANTS, type Variant, variantNamed } from "./prove-rules.ts";
import { command, commandLine, FORM_AND_HELP, type ReadLine, TEXT_OR_JSON } from "./subcommand-options.ts";
import { localAddress, refuseUnplanned } from "./trace-rules.ts";

const NAMES = VARIANTS.map(({ name }) => name);

const PROVE = commandLine("kube-proxy prove", { forms: TEXT_OR_JSON }, [
  `Usage: kube-proxy prove -f DIR|FILE|- [--modes LIST] [options]
       kube-proxy prove --kubeconfig FILE [--modes LIST] [options]
       kube-proxy prove (-f DIR|FILE|- | --kubeconfig FILE) (--dump FILE|DIR|- | --kernel) [options]
       kube-proxy prove --dump FILE|DIR --against FILE|DIR --local ADDRESS... [options]

Says whether rules do with every packet what the Services ask for: not with samples, with all of them. Rules compare
packets with finitely many values, so packets fall into finitely many classes; one of each goes through both sides.
The other side is a specification written from Kubernetes' documents, or other rules. Where the two differ, a packet is
shown, and its way. Nothing is sent.

`,
  {
    ...OBJECTS_OPTIONS,
    "--modes LIST": `whose rules are planned and compared: ${NAMES.join(", ")} (default all)`,
    "--dump FILE|DIR|-...": `rules of a node instead of a plan, of any version of any kube-proxy, as for trace (repeatable);
        a sysdump has the objects, too`,
    "--against FILE|DIR|-...": "other rules instead of the specification (repeatable)",
    "--kernel": "the rules of this node's kernel instead of a plan; needs root",
    "--as MODE": "whose documented differences these rules have (default: the mode that they show)",
    "--local ADDRESS...": "an address of the node, where no objects say it (repeatable)",
    "--whole-node": "compares what the node does, with the rules that kubelet, CNI plugins and others put on it",
    "--all-nodes": "every Node of the objects",
    ...INSPECT_OPTIONS,
    "--differences": "what each mode does otherwise than the documents say, and is compared with, and end",
    ...FORM_AND_HELP,
  },
  `
Examples:
  kube-proxy prove -f examples --node node-a
  kube-proxy prove -f cluster.yaml --node node-a --dump iptables.txt --as iptables
  kube-proxy prove --dump before.txt --against after.txt --local 192.168.0.2

Exit status: 0 when both do the same with all packets, 1 when not, 2 when that cannot be proved or the input cannot be used.
`,
]);

export const proveCommand = command(PROVE, async ({ values, form }, output, input) => {
  const options = readOptions(values);
  if (options.differences) {
    for (const variant of options.variants)
      output.out(painted(await differencesText(variant, options), output.terminal));
    return EXIT_SUCCESS;
  }
  // Keeps no answer: its sides hold whole rule sets, and there is one answer per mode and node.
  const results = new Set<ReturnType<typeof resultOf>>();
  const data: ReturnType<typeof answerData>[] = [];
  for await (const answer of answersTo(options, output, input)) {
    results.add(resultOf(answer.proof));
    if (form === "json") data.push(answerData(answer));
    else output.out(painted(safe(answerText(answer)), output.terminal));
  }
  if (form === "json") output.out(jsonText(data));
  if (results.has("cannot be proved")) return EXIT_BAD_INPUT;
  return results.has("different") ? EXIT_FAILURE : EXIT_SUCCESS;
});

type Options = ReturnType<typeof readOptions>;

async function* answersTo(options: Options, output: Output, input: NodeJS.ReadableStream): AsyncGenerator<Answer> {
  const { dump = [], against = [], kernel } = options;
  const { families, config } = await readChoices(options);
  const sysdump = against.length === 0 ? await contextOf(dump) : undefined;
  const isElsewhere = [options.filename, options.kubeconfig, options.context].some((given) => given !== undefined);
  const isOfObjects = isElsewhere || sysdump !== undefined;
  const isOfRules = dump.length > 0 || kernel;
  if (isOfRules && against.length === 0 && !isOfObjects)
    throw new UsageError(
      "nothing says what the rules must do: give the objects with -f or --kubeconfig, or other rules with --against",
    );
  const local = options.local.map(localAddress);
  const rules = kernel
    ? await foundInKernel(families, config)
    : dump.length > 0
      ? await foundInDumps(dump, input)
      : undefined;
  if (rules?.read !== undefined) output.err(safe(`read: ${rules.read.join("; ")}\n`));
  for (const note of new Set(rules?.notes)) output.err(safe(`warning: ${note}\n`));
  if (rules !== undefined && against.length > 0) {
    yield* answersBetween(rules, await foundInDumps(against, input), families, local, output);
    return;
  }
  const from = sysdump === undefined || isElsewhere ? options : sysdump.objects;
  const read = await readObjects(from, output, input, { isOfKernel: kernel });
  const objects = { ...read, configuration: sysdump?.configuration ?? read.configuration };
  const node = options.node ?? options["hostname-override"] ?? sysdump?.node;
  const asked = { ...options, node };
  const first = await readChoices(asked, objects.configuration);
  warner(output, false, first.warnings);
  const chosen = options["all-nodes"]
    ? undefined
    : chosenNode(objects.nodes, first.config, { isThisHost: kernel, ...seenFromSlices(objects) });
  if (chosen?.note !== undefined) output.err(safe(`${chosen.note}\n`));
  const nodes = chosen === undefined ? objects.nodes.map(({ name }) => name) : [chosen.config.hostnameOverride];
  if (nodes.length === 0) throw new UsageError("--all-nodes needs Nodes, and there are none");
  let isDifferent = false;
  for (const node of nodes) {
    for await (const answer of answersOn(
      objects,
      node === "" ? asked : { ...options, node },
      { rules, local },
      output,
    )) {
      isDifferent ||= resultOf(answer.proof) === "different";
      yield answer;
    }
  }
  if (isDifferent && rules !== undefined && first.isBare) output.err(BARE);
}

/** Compares two dumps, for the families that either has. */
async function* answersBetween(
  one: FoundRules,
  other: FoundRules,
  families: readonly IpFamily[],
  local: readonly IpAddress[],
  output: Output,
): AsyncGenerator<Answer> {
  const common = families.filter((family) => one.families.has(family) || other.families.has(family));
  const known = common.filter((family) => local.some((address) => familyOf(address) === family));
  if (known.length === 0)
    throw new UsageError(`the dumps are of ${common.join(" and ") || "no family"}: give an address of it with --local`);
  for (const family of known) {
    const own = local.filter((address) => familyOf(address) === family);
    const sides = [one.side(family, own), { ...other.side(family, own), proxyPart: undefined }] as const;
    yield { node: undefined, family, sides, proof: await proved(family, own, sides, output) };
  }
}

/** @param services how many there are. @param of the line's beginning. */
async function proved(
  family: IpFamily,
  own: readonly IpAddress[],
  sides: Answer["sides"],
  { progress }: Output,
  services?: number,
  of?: string,
): Promise<Proof> {
  const steps = proving(family, own, sides);
  let step = steps.next();
  for (; step.done !== true; step = steps.next()) {
    const { classes, services: done } = step.value;
    await progress?.(
      services === undefined
        ? { what: "classes of packets", done: classes }
        : { what: "Services", done: Math.min(done, services), total: services, of },
    );
  }
  return step.value;
}

async function* answersOn(
  objects: ReadObjects,
  options: Options,
  { rules, local }: { readonly rules: FoundRules | undefined; readonly local: readonly IpAddress[] },
  output: Output,
): AsyncGenerator<Answer> {
  const warn = warner(output, objects.lacksNodes);
  const asked = options.as === undefined ? undefined : variantNamed(options.as);
  const variants =
    rules === undefined
      ? options.variants
      : [asked ?? rules.shown ?? (await configured(options, objects.configuration))];
  const total = objects.services.length;
  if (rules !== undefined) {
    const missing = (["services", "endpointSlices"] as const).find((kind) => objects[kind].length === 0);
    if (missing !== undefined)
      throw new UsageError(
        `there is no ${missing === "services" ? "Service" : "EndpointSlice"} among the objects, and every cluster has some: what the rules must do is not known`,
        "Give what kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml prints.",
      );
  }
  let count = 0;
  for (const variant of variants) {
    const { config, families } = await choicesFor(variant, options, objects.configuration);
    if (rules !== undefined && variant.deviations(config).includes("proxy-connects"))
      throw new UsageError(
        `rules of ${variant.name} mode send packets to the proxy itself, and do not say where it connects`,
        "Prove its plan with --modes, or compare two dumps with --against.",
      );
    for (const family of families) {
      const named = local.filter((address) => familyOf(address) === family);
      const listed = rules?.addresses?.(family) ?? offlineNode(objects, config, family, () => {}).hostAddresses;
      const { standing: _, ...stated } = objects;
      const node = offlineNode(stated, config, family, warn, [...new Set([...listed, ...named])]);
      const own = node.hostAddresses;
      const record = objects.nodes.find(({ name }) => name === node.name);
      if (record === undefined || !record.addresses.some(({ address }) => isOf(address, family))) continue;
      if (rules !== undefined && !rules.families.has(family)) {
        warn(`no rules of ${family} were given: it is not proved`);
        continue;
      }
      const of = `${variant.name} on ${node.name}, ${family}`;
      await output.progress?.({ what: "Services", done: 0, total, of });
      const deviations = variant.deviations(config);
      const all =
        rules?.side(family, own, { guardsLoopback: guardsLoopback(node, deviations) }) ??
        (await planSide(variant.name, node, config).catch(refuseUnplanned));
      const side = options["whole-node"] ? { ...all, proxyPart: undefined } : all;
      const specification = specificationSide(objects, node, config, deviations, side.ownSockets);
      const standing = rules === undefined ? [] : standingPorts(objects, node);
      const doubts = unusable(objects, rules !== undefined && objects.standing?.node === node.name);
      const sides = besideStanding(standing, own, [{ ...specification, doubts }, side]);
      const decided = rules === undefined ? [] : decidedLines(objects, node.name, [family]);
      count += 1;
      const proof = await proved(family, own, sides, output, total, of);
      const lacksRange = objects.serviceCIDRs.length === 0 && deviations.includes("unallocated-dropped");
      if (rules !== undefined && lacksRange && proof.unprovable !== RANGE_NOT_GIVEN) warn(RANGE_NOT_GIVEN);
      yield { node: node.name, family, sides, proof, decided };
    }
  }
  if (count === 0)
    throw new UsageError(
      objects.nodes.length === 0
        ? `a proof needs the node's addresses, and ${objects.lacksNodes ? "the Nodes may not be read: give them" : "no Node is among the objects: give its Node"} with -f`
        : `the node has no address of the requested family${rules === undefined ? "" : ", or the dump has no rules of it"}`,
    );
}

/** What Services, endpoints and Nodes that cannot be used would ask for. @param isAsked whether the node's daemon has said what it does with Services */
function unusable({ problems }: ReadObjects, isAsked: boolean): readonly string[] {
  const errors = problems.filter(({ severity }) => severity === "error");
  const count = errors.filter(({ object }) => !isAsked || !object.startsWith("Service ")).length;
  const objects =
    count === 1 ? "an object cannot be used (its error is" : `${count} objects cannot be used (their errors are`;
  return count === 0 ? [] : [`${objects} above), and what depends on it is not compared`];
}

/** The service ports that the node's daemon keeps against the objects: as they should be, and as they are. */
function standingPorts(objects: ReadObjects, { name, family, state }: OfflineNode): ServicePort[] {
  return standingOn(objects, name, family).flatMap(({ servicePort, inForce }) =>
    [state.services.get(servicePort) ?? [], inForce?.port ?? []].flat(),
  );
}

/** Rules that show no mode, or none at all, are judged as those that the configuration asks for. */
async function configured(options: Options, found?: FoundConfiguration): Promise<Variant> {
  const { config } = await readChoices(options, found);
  for (const variant of VARIANTS.filter(({ mode }) => mode === config.mode))
    if (isDeepStrictEqual((await choicesFor(variant, options, found)).config, config)) return variant;
  return variantNamed(config.mode);
}

async function choicesFor(
  { mode, choose }: Variant,
  options: Options,
  found?: FoundConfiguration,
): Promise<InspectChoices> {
  return await readChoices({ ...options, mode }, found, choose);
}

function isOf(text: string, family: IpFamily): boolean {
  const address = parseIpAddress(text);
  return address !== undefined && familyOf(address) === family;
}

async function differencesText(variant: Variant, options: Options): Promise<string> {
  const { config } = await choicesFor(variant, options);
  const lines = variant.deviations(config).map((deviation) => `  ${deviation}: ${DEVIATIONS[deviation]}`);
  return `${[`${variant.name}:`, ...(lines.length > 0 ? lines : ["  none"])].join("\n")}\n`;
}

function readOptions(values: ReadLine<typeof PROVE>["values"]) {
  const { dump = [], against = [], kernel, filename = [], local = [] } = values;
  if (kernel && dump.length > 0) throw new UsageError("--kernel and --dump exclude each other");
  if (against.length > 0 && dump.length === 0)
    throw new UsageError("--against needs --dump: the rules that it is compared with");
  if (against.length > 0 && local.length === 0)
    throw new UsageError("two dumps do not say which addresses belong to the node: give them with --local");
  if ([...dump, ...against, ...filename].filter((path) => path === "-").length > 1)
    throw new UsageError("standard input can be read only once: give files for the others");
  const isOfRules = dump.length > 0 || kernel;
  if (values["all-nodes"] && values.node) throw new UsageError("--node and --all-nodes exclude each other");
  if (isOfRules && values["all-nodes"]) throw new UsageError("the rules are of one node: leave --all-nodes out");
  if (isOfRules && values.modes !== undefined)
    throw new UsageError("--modes is for plans; for rules of a node give --as MODE");
  if (!isOfRules && values.as !== undefined)
    throw new UsageError("--as is for rules of --dump or --kernel; for plans give --modes LIST");
  return { ...values, local, variants: (values.modes ?? values.mode ?? NAMES.join(",")).split(",").map(variantNamed) };
}
