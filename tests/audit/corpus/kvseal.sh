kvseal serve --port 8080
