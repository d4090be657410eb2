/** `kube-proxy sysdump`: one archive for support, without secrets. */
import { statSync } from "node:fs";
import { hostname } from "node:os";
import type { StatusReport } from "../../agent/daemon/inspect-report.ts";
import { CURRENT_RELEASE } from "../../contract/config/release.ts";
import { DEFAULT_INSPECT_SOCKET, identityLine, programIdentity } from "../../program/program-identity.ts";
import { objectsList } from "../explain/objects-list.ts";
import { safe } from "../explain/safe-text.ts";
import { INSPECT_OPTIONS } from "./inspect-options.ts";
import { askIfThere } from "./inspect-socket-client.ts";
import { OBJECTS_OPTIONS, readObjects } from "./objects-input.ts";
import { EXIT_SUCCESS, type Output, UsageError } from "./output.ts";
import { command, commandLine, type ReadLine } from "./subcommand-options.ts";
import { type Archive, type ArchiveIndex, type SysdumpPart, writeArchive } from "./sysdump/archive.ts";
import { daemonFacts } from "./sysdump/daemon-facts.ts";
import { hostFacts } from "./sysdump/host-facts.ts";
import { type HttpPlaces, httpPlaces, logParts, settingsParts } from "./sysdump/settings.ts";

const SYSDUMP = commandLine("kube-proxy sysdump", {}, [
  `Usage: kube-proxy sysdump [-o FILE] [options]

Writes one archive (tar.gz) for support: versions, configuration, what a running daemon says of itself, the rules and
settings of this host's kernel, and the objects. Works without a daemon, and without root; what could not be read is in its
index, with the reason. Secrets are left out: tokens, passwords, keys, certificates, the
environment of exec plugins. Names of Services and addresses are in it.

`,
  {
    "-o, --output FILE|-": `the archive, readable by its owner alone; - is standard output
        (default kube-proxy-sysdump-NODE-TIME.tar.gz)`,
    "--force": "replace a file that is there",
    "--socket FILE": `the daemon's --inspect-socket (default ${DEFAULT_INSPECT_SOCKET})`,
    "--metrics HOST:PORT": "where it serves metrics (default: of --config, or 127.0.0.1:10249)",
    "--healthz HOST:PORT": "where it serves healthz (default: of --config, or 127.0.0.1:10256)",
    "--log FILE...": "the end of a log file (repeatable)",
    ...OBJECTS_OPTIONS,
    ...INSPECT_OPTIONS,
    "-h, --help": "this text",
  },
  `
The other commands read the archive, or what is unpacked of it: objects, node, configuration and rules.

  kube-proxy explain shop/web --dump FILE
  kube-proxy trace --from shop/client --to shop/web:http --dump FILE
  kube-proxy diff --dump FILE
  kube-proxy prove --dump FILE

Examples:
  kube-proxy sysdump --config /etc/kube-proxy.yaml --kubeconfig /etc/kube-proxy.kubeconfig
  kubectl exec -n kube-system kube-proxy-abcde -- kube-proxy sysdump -o - > node-a.tar.gz

Exit status: 0; 2 when the archive cannot be written, or the command line is wrong.
`,
]);

/** @param stream the target of `-o -`. */
export const sysdump = command(
  SYSDUMP,
  async ({ values }, output, input, stream: NodeJS.WritableStream = process.stdout) => {
    const options = readOptions(values);
    const { path, folder, createdMs } = options;
    // If no daemon answers, a part of the archive gives the reason.
    const report = (await askIfThere(options.socket, "/status")) as Partial<StatusReport> | null | undefined;
    const places = await httpPlaces(options.values.config);
    const head = {
      program: identityLine(programIdentity()),
      kubernetes: CURRENT_RELEASE.version,
      node: options.node,
      created: new Date(createdMs).toISOString(),
      user: process.getuid?.() === 0 ? "root" : "not root",
      daemon: typeof report === "object" && report !== null ? report.program : "did not answer",
      uses: "explain, trace, diff and prove read this folder: see kube-proxy sysdump --help",
    };
    const parts = partsOf(options, places, input).map(({ name: of, read }, done, { length: total }) => ({
      name: of,
      async read() {
        await output.progress?.({ of, what: "parts", done, total });
        return await read();
      },
    }));
    const archive: Archive = { folder, createdMs, head, parts };
    const index = await writeArchive(path === "-" ? stream : path, options.replaces, archive);
    tell(path, index, output);
    return EXIT_SUCCESS;
  },
);

function tell(path: string, { files, notRead }: ArchiveIndex, output: Output): void {
  for (const { name, why } of notRead) output.err(safe(`left out: ${name}: ${why}\n`));
  const isStream = path === "-";
  const size = isStream ? "" : `, ${Math.ceil(statSync(path).size / 1024)} KiB`;
  const line = `${isStream ? "standard output" : path}: ${files.length} parts${size}\n`;
  if (isStream) output.err(line);
  else output.out(safe(line));
}

function partsOf(
  { values, socket }: ReturnType<typeof readOptions>,
  places: HttpPlaces,
  input: NodeJS.ReadableStream,
): readonly SysdumpPart[] {
  const problems: string[] = [];
  const quiet: Output = { out: () => {}, err: (text) => void problems.push(text) };
  const objects = async () => objectsList(await readObjects(values, quiet, input));
  return [
    ...settingsParts(values.config, values.kubeconfig),
    ...daemonFacts(socket, { metrics: values.metrics ?? places.metrics, healthz: values.healthz ?? places.healthz }),
    ...hostFacts(socket),
    { name: "objects/cluster.json", read: async () => `${JSON.stringify(await objects(), undefined, 1)}\n` },
    { name: "objects-problems.txt", read: async () => problems.join("") },
    ...logParts(values.log ?? []),
  ];
}

function readOptions(values: ReadLine<typeof SYSDUMP>["values"]) {
  for (const [flag, address] of Object.entries({ metrics: values.metrics, healthz: values.healthz })) {
    if (address !== undefined && !/^[\w.:[\]-]+:\d{1,5}$/.test(address))
      throw new UsageError(`--${flag} must be HOST:PORT, got "${address}"`);
  }
  const createdMs = Date.now();
  const node = values.node ?? values["hostname-override"] ?? hostname();
  const time = new Date(createdMs).toISOString().replaceAll(/[-:]|\.\d+/g, "");
  const folder = `kube-proxy-sysdump-${node.replaceAll(/[^\w.-]/g, "_").slice(0, 40)}-${time}`;
  const path = values.output ?? `${folder}.tar.gz`;
  return {
    values,
    node,
    folder,
    createdMs,
    path,
    socket: values.socket ?? DEFAULT_INSPECT_SOCKET,
    replaces: values.force,
  };
}
