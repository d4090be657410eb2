/**
 * `node scripts/bpf.mjs [FOLDER]`: compiles the eBPF programs to the object files in the repository, or to the same paths
 * below another folder: for each IP family one that is shipped, and one for tests. Prints the paths. Needs this version of
 * clang, because another makes other bytes; only changing a program needs a compiler (docs/notes/ebpf-programs-in-c.md).
 */
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const FOLDER = "src/modes/ebpf/socket-balancer";
const SOURCE = "socket.bpf.c";
const CLANG = "clang-19";

/** The outputs, by paths below the repository, with their extra compiler options. */
const OBJECTS = [4, 6].flatMap((family) => [
  [join(FOLDER, `socket${family}.o`), [`-DFAMILY=${family}`]],
  [join(FOLDER, `testing/socket${family}.o`), [`-DFAMILY=${family}`, "-DTEST"]],
]);

/** Nothing in the files depends on the machine: no debug information, no compiler name. Linux 5.3 knows all instructions of `v3`. */
const FLAGS = [
  ...["-target", "bpf", "-mcpu=v3", "-O2", "-g0", "-nostdinc", "-fno-ident", "-fno-addrsig"],
  ...["-Wall", "-Wextra", "-Werror", "-c", SOURCE],
];

const into = process.argv[2] ?? root;
for (const [path, told] of OBJECTS) {
  mkdirSync(dirname(join(into, path)), { recursive: true });
  execFileSync(CLANG, [...FLAGS, ...told, "-o", join(into, path)], { cwd: join(root, FOLDER), stdio: "inherit" });
  console.log(path);
}
