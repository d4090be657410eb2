@echo off
set KUBE_PROXY_TS_PLUGIN=1
node "%~dp0start.cjs" %*
