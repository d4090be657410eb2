// Starts the program, unless Node.js is too old for it: the text below is read by versions that cannot read the program.
const { version } = process;
if (Number(version.slice(1).split(".")[0]) < 24) {
  process.stderr.write(`kubectl kube-proxy needs Node.js 24 or newer; ${process.execPath} is ${version}\n`);
  process.exitCode = 1;
} else {
  void import("./dist/bundle/main.js");
}
