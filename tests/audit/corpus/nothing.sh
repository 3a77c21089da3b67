#!/bin/sh
echo hello; ls -la
