/** The command line of `kube-proxy diff`. */
import { KERNEL_FEATURES } from "../dataplane/rendering.ts";
import { contextOf } from "./dump-folder.ts";
import { UsageError } from "./exit.ts";
import { INSPECT_FLAGS, INSPECT_FLAGS_HELP, readChoices, readMissing } from "./inspect-options.ts";
import { type FoundConfiguration, OBJECTS_FLAGS, OBJECTS_FLAGS_HELP } from "./objects-input.ts";
import { wordReader } from "./subcommand-options.ts";

/** Between two looks of `--watch`, unless `--interval` says otherwise. */
const WATCH_SECONDS = 10;

export const DIFF_USAGE = `Usage: kube-proxy diff OLD NEW [options]
       kube-proxy diff [-f DIR|FILE|-] --dump FILE [options]
       kube-proxy diff [-f DIR|FILE|-] --kernel [options]

Between two folders or files of manifests: what the change does to clients, node by node, and to the rules. With --dump or
--kernel: what is wanted for the manifests and is not in the kernel, and the other way round, each with its Service.

${OBJECTS_FLAGS_HELP}
      --dump FILE|DIR|-        what iptables-save, ip6tables-save, nft (-j) list ruleset, ipset save or ipvsadm -S -n
                               have printed on the node (repeatable), or the folder that a sysdump was unpacked to,
                               with objects, node and configuration; only what the dumps tell about is compared
      --kernel                 ask these tools on this host, and in ebpf mode read the pinned maps; needs root
${INSPECT_FLAGS_HELP}
                               (between manifests, without --node: for every Node that both have)
      --without LIST           what the node's kernel or tools lack: ${KERNEL_FEATURES.join(", ")}
      --rules                  between manifests: every rule that changes
      --watch                  with --kernel: look again and again, and tell what has changed
      --interval SECONDS       with --watch: between two looks (default ${WATCH_SECONDS})
  -o, --output FORM            text, json (default text)
  -h, --help                   this text

Examples:
  kube-proxy diff main/manifests branch/manifests
  ssh node-a iptables-save | kube-proxy diff -f cluster.yaml --node node-a --dump -
  kubectl kube-proxy diff --kernel --all-nodes      which nodes' kernels have something else, from their pods
  kube-proxy diff -f /etc/manifests --config /etc/kube-proxy.yaml --kernel --watch

Exit status: 0 without differences, 1 with some, 2 when the input cannot be used.
`;

export type DiffOptions = Awaited<ReturnType<typeof readDiffOptions>>;

export const diffFlags = wordReader("kube-proxy diff", {
  ...INSPECT_FLAGS,
  ...OBJECTS_FLAGS,
  dump: { type: "string", multiple: true },
  kernel: { type: "boolean" },
  without: { type: "string", default: "" },
  rules: { type: "boolean" },
  watch: { type: "boolean" },
  interval: { type: "string" },
  output: { type: "string", short: "o", default: "text" },
});

/** @throws UsageError */
export async function readDiffOptions({ values, positionals }: ReturnType<typeof diffFlags>) {
  const { filename = [], dump = [], kernel = false, watch: watches = false } = values;
  const mode = kernel ? "kernel" : dump.length > 0 ? "dumps" : "objects";
  const hint = "See 'kube-proxy diff --help'.";
  if (kernel && dump.length > 0)
    throw new UsageError("--kernel and --dump are two things to compare with: give one", hint);
  if (watches && !kernel) throw new UsageError("--watch needs --kernel: nothing else changes by itself", hint);
  const { interval } = values;
  if (interval !== undefined && !watches) throw new UsageError("--interval is for --watch", hint);
  if (interval !== undefined && !/^[1-9]\d{0,4}$/.test(interval)) {
    throw new UsageError(`--interval must be a number of seconds from 1 to 99999, got "${interval}"`);
  }
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
  if (readsInput.length > 1) throw new UsageError("- was given more than once: standard input can be read once");
  const sysdump = await contextOf(dump);
  const isElsewhere = filename.length > 0 || values.kubeconfig !== undefined || values.context !== undefined;
  const node = values.node ?? values["hostname-override"] ?? sysdump?.node;
  const own = sysdump === undefined || isElsewhere ? values : { filename: [sysdump.objects] };
  const read = async (found: FoundConfiguration | undefined) =>
    await readChoices({ ...values, node }, undefined, found);
  return {
    mode,
    /** Of a sysdump. */
    found: sysdump?.configuration,
    /** Reads the configuration again, with what there is of it beside the objects. */
    read,
    /** Two of manifests, or one. */
    sides: mode === "objects" ? positionals.map((path) => ({ filename: [path] })) : [own],
    dumps: dump,
    choices: await read(undefined),
    isNodeGiven: (values.node ?? values["hostname-override"]) !== undefined,
    isFamilyGiven: values.family !== "both",
    missing: readMissing(values.without),
    showsRules: values.rules ?? false,
    /** Between two looks; undefined: one look is all. */
    watchSeconds: watches ? Number(interval ?? WATCH_SECONDS) : undefined,
    form: values.output,
  };
}
