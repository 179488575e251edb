// Command assemble writes the OpenAPI document of a server with the built-in
// modules to a file. Clients are generated from that file, so that they have the
// read models and intents of the modules too; a test checks that it is current.
package main

import (
	"fmt"
	"os"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
)

func main() {
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(path string) error {
	catalog, err := module.Build(jsonschema.New(), gl.New(), ap.New())
	if err != nil {
		return fmt.Errorf("modules: %w", err)
	}
	document, err := httpapi.Document(catalog)
	if err != nil {
		return err
	}
	return os.WriteFile(path, document, 0o644) //nolint:gosec // a source file
}
