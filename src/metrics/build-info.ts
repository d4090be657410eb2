/** Labels of `kubernetes_build_info` and output of `--version=raw`; facts about Node.js are in place of Go's. */
export const BUILD_FACTS = [
  ...(["major", "minor", "git_version", "git_commit", "git_tree_state"] as const),
  ...(["build_date", "go_version", "compiler", "platform"] as const),
];

export type BuildInfo = Readonly<Record<(typeof BUILD_FACTS)[number], string>>;
