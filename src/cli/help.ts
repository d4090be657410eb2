/** `kube-proxy help [COMMAND|TOPIC]`: the help of each command, and what concerns several of them, with examples. */
import { MODES } from "../dataplane/registry.ts";
import { COMMANDS, findCommand } from "./commands.ts";
import { EXIT_SUCCESS, UsageError } from "./exit.ts";
import type { Output } from "./output.ts";
import { nearestWord } from "./suggestion.ts";

/** What concerns several commands. */
interface Topic {
  readonly name: string;
  readonly summary: string;
  readonly text: string;
}

const OBJECTS = `Where objects come from

explain, diff and sysdump read Services, EndpointSlices and Nodes from manifests (-f), or from a cluster with your own
permissions. render and trace read manifests.

  -f DIR               every .yaml, .yml and .json file in it
  -f FILE              one file; what kubectl get … -o yaml prints is one, too
  -f -                 standard input
  --kubeconfig FILE    a cluster; without it $KUBECONFIG, ~/.kube/config, or the pod's own account
  --context NAME       the context in the kubeconfig
  --node NAME          the node to look from; needed where there are several

Examples:
  kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml > cluster.yaml
  kube-proxy explain shop/web -f cluster.yaml --node node-a
  kubectl kube-proxy explain svc/web -n shop --node node-a
  kube-proxy diff main/manifests branch/manifests
`;

const RULES = `Rules of a node, and dumps of them

trace walks a packet through rules, and diff compares rules with what is wanted: those of this host's kernel (as root), or
what these tools print on any node. Each --dump takes one file, - for standard input, or the folder of an unpacked sysdump.

  iptables-save, ip6tables-save     trace, diff
  nft list ruleset                  diff
  nft -j list ruleset               trace
  ipset save, ipvsadm -S -n         trace, diff

Examples:
  ssh node-a iptables-save | kube-proxy trace --from 10.0.0.9 --to 10.96.0.10:80 --local 192.168.0.2 --dump -
  ssh node-a nft list ruleset | kube-proxy diff -f cluster.yaml --node node-a --mode nftables --dump -
  sudo kube-proxy trace --from node --to 10.96.0.10:80
  kube-proxy sysdump -o - | tar -xzf - && kube-proxy diff -f kube-proxy-sysdump-*/objects --dump kube-proxy-sysdump-*
`;

const DAEMON = `Asking a running daemon

A daemon that was started with --inspect-socket FILE answers its own user there: status, services, flows, monitor and sysdump take
the same path with --socket. Nothing else listens, and nothing can be changed there.

Examples:
  kube-proxy --config /etc/kube-proxy.yaml --inspect-socket /run/kube-proxy/inspect.sock
  kube-proxy status
  kube-proxy services shop/web
  kube-proxy flows shop/web --watch
  kubectl exec -n kube-system POD -- kube-proxy status
`;

const STATUSES = `Exit statuses

  command                  0                          1                           2
  explain, trace           answered                   -                           bad input, or nothing of that name
  services, flows, monitor answered                   -                           no daemon answers
  status                   healthy, none refused      not healthy, or refused     no daemon answers
  diff                     no difference              differences                 bad input
  sysdump                  written                    -                           cannot be written, or bad input
  render                   printed                    a document cannot be used,  -
                                                      or bad input
  completion, help         printed                    no such shell or topic      -
  the proxy itself         ended by a signal; or      everything else             -
                           --cleanup, … done
  no such command          -                          as kube-proxy: 1            -

trace --live also ends with 1: when no packet came, or when the kernel did something else than the simulation.

Examples:
  kube-proxy diff -f cluster.yaml --node node-a --kernel > /dev/null || echo "not as it is wanted"
  kube-proxy status || systemctl status kubelet
`;

const OUTPUT_TOPIC = `Output

Text is for people and may change; -o json is for programs. What comes from objects is escaped, so that no name can do
anything to a terminal. On a terminal, tables are as wide as it is, and what is well or is not has a colour.

  --color WHEN         auto (on a terminal), always, never; of every command but the proxy itself
  NO_COLOR=1           no colour, unless --color=always

Examples:
  kube-proxy explain shop/web -f examples --node node-a --color=always | less -R
  kube-proxy explain shop/web -f examples --node node-a -o json | jq '.servicePorts[].endpoints'
`;

const MODE_TOPIC = `Modes

  ${MODES.map(({ name }) => name).join(", ")}

The mode is that of the configuration (--config), or --mode; explain, trace, render and diff can look at any of them, without
a kernel that has it. docs/concepts.md says which to choose.

Examples:
  kube-proxy explain shop/web -f examples --node node-a --mode nftables
  kube-proxy explain shop/web -f examples --node node-a --what-if mode=ipvs
  kube-proxy render -f examples --mode ipvs --hostname-override node-a
`;

/** In the order in which they are listed. */
export const TOPICS: readonly Topic[] = [
  { name: "objects", summary: "manifests and clusters as input", text: OBJECTS },
  { name: "dumps", summary: "rules of this host's kernel and of other nodes", text: RULES },
  { name: "daemon", summary: "asking a running daemon", text: DAEMON },
  { name: "modes", summary: "the proxy modes", text: MODE_TOPIC },
  { name: "output", summary: "forms, colour, width", text: OUTPUT_TOPIC },
  { name: "exit-statuses", summary: "what the exit status of each command says", text: STATUSES },
];

export const HELP_USAGE = `Usage: kube-proxy help [COMMAND|TOPIC]

Prints the help of a command, or what concerns several of them.

Topics:
${TOPICS.map(({ name, summary }) => `  ${name.padEnd(16)}${summary}`).join("\n")}

Examples:
  kube-proxy help explain
  kube-proxy help exit-statuses

Exit status: 0; 1 when there is no such command or topic.
`;

/** Runs the command. @param argv without the word `help`. @returns the exit status. @throws UsageError */
export async function help(argv: readonly string[], output: Output): Promise<number> {
  const [word, ...more] = argv;
  if (word === "-h" || word === "--help") {
    output.out(HELP_USAGE);
    return EXIT_SUCCESS;
  }
  if (word === undefined) {
    const commands = COMMANDS.map(({ name, summary }) => `  ${name.padEnd(16)}${summary}`).join("\n");
    output.out(`${HELP_USAGE}\nCommands:\n${commands}\n\nkube-proxy --help lists the flags of the proxy itself.\n`);
    return EXIT_SUCCESS;
  }
  const text = TOPICS.find(({ name }) => name === word)?.text ?? (await findCommand(word)?.usage());
  if (text === undefined || more.length > 0) {
    const known = [...TOPICS, ...COMMANDS].map(({ name }) => name);
    const nearest = nearestWord(word, known);
    throw new UsageError(
      more.length > 0 ? `help takes one word, got "${argv.join(" ")}"` : `no help for "${word}"`,
      nearest === undefined ? `There is help for ${known.join(", ")}.` : `Did you mean kube-proxy help ${nearest}?`,
    );
  }
  output.out(text);
  return EXIT_SUCCESS;
}
