/** The image, built from the Containerfile as it is, and programs run in it as a container runtime would. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { IMAGE_TOOLS } from "../../testkit/needs/image-tools.ts";
import { runCommand } from "../../testkit/net/run-command.ts";
import { isExecutable } from "../../testkit/support/tools.ts";
import { ensureLocalBases } from "./local-bases.ts";

const CHECKOUT = fileURLToPath(new URL("../../", import.meta.url));
const CACHE = join(CHECKOUT, ".cache/image");
const LIMIT_MS = 280_000;

/** Why there can be no image here, or `false`; for the `skip` option of a test. */
export function imageSkip(): string | false {
  if (process.getuid?.() !== 0) return "building an image needs root here";
  const missing = IMAGE_TOOLS.filter((tool) => !isExecutable(tool));
  return missing.length === 0 ? false : `missing ${missing.join(", ")}: install the packages of that name`;
}

/** No daemon, no overlay file systems, no namespaces of users: works in most containers that run as root. */
const STORAGE = ["--root", join(CACHE, "storage"), "--runroot", join(CACHE, "run"), "--storage-driver", "vfs"];

async function buildah(...args: readonly string[]): Promise<string> {
  return (await runCommand(["buildah", ...STORAGE, ...args], { timeoutMs: LIMIT_MS })).stdout;
}

export interface Image {
  /** The image's files, in a container's own copy. */
  readonly root: string;
  /** As `buildah inspect` shows it. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Runs a command in a container of the image. @returns what it printed. */
  run(...argv: readonly string[]): Promise<string>;
  remove(): Promise<void>;
}

/** What the image under test is told to be built from. */
export const IMAGE_COMMIT = "0123456789abcdef0123456789abcdef01234567";

/** What `buildah` has to be told here, before and behind the word `build`. */
export async function buildahHere(): Promise<{
  readonly storage: readonly string[];
  readonly build: readonly string[];
}> {
  mkdirSync(CACHE, { recursive: true });
  const { base, build } = await ensureLocalBases({ checkout: CHECKOUT, cache: CACHE, buildah });
  const args = [`BASE=${base}`, `BUILD_BASE=${build}`].flatMap((arg) => ["--build-arg", arg]);
  return { storage: STORAGE, build: ["--isolation", "chroot", "--pull-never", ...args] };
}

/** Builds the image of this checkout. */
export async function buildImage(): Promise<Image> {
  const { build } = await buildahHere();
  const name = `localhost/kube-proxy-ts:${process.pid}`;
  const file = join(CHECKOUT, "deploy/image/Containerfile");
  await buildah("build", ...build, "--build-arg", `COMMIT=${IMAGE_COMMIT}`, "-f", file, "-t", name, CHECKOUT);
  return await openImage(name);
}

/** A container of an image that has been built. */
export async function openImage(name: string): Promise<Image> {
  const container = (await buildah("from", name)).trim();
  const inspected = JSON.parse(await buildah("inspect", "--type", "image", name));
  return {
    root: (await buildah("mount", container)).trim(),
    config: inspected.OCIv1.config,
    run: (...argv) => buildah("run", "--isolation", "chroot", container, "--", ...argv),
    async remove() {
      await buildah("rm", container);
      await buildah("rmi", name);
    },
  };
}

/**
 * Becomes a program of the image as the pod's container runtime starts it: PID 1 of its own process namespace, the root
 * file system read-only, and what is mounted where.
 */
const AS_CONTAINER = `
set -eu
root=$1
shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs none "$root/run"
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$root$2"; else : > "$root$2"; fi
  mount --bind "$1" "$root$2"
  shift 2
done
shift
mount -o remount,bind,ro "$root"
exec chroot "$root" "$@"
`;

/** Where in the container which path of this machine is mounted. */
export type ContainerMounts = Readonly<Record<string, string>>;

/**
 * The arguments that run a program of the image in a container, in the network namespace in which they are run, with the
 * environment that the image gives and nothing of this machine's.
 */
export function inContainer(
  image: Image,
  mounts: ContainerMounts,
  argv: readonly string[],
): readonly [string, ...string[]] {
  const environment = Array.isArray(image.config.Env) ? image.config.Env.map(String) : [];
  const unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"];
  const binds = Object.entries(mounts).flatMap(([inside, outside]) => [outside, inside]);
  return ["env", "-i", ...environment, ...unshare, "sh", "-c", AS_CONTAINER, "sh", image.root, ...binds, "--", ...argv];
}
