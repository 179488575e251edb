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
	"github.com/erpbackbone/backbone/modules"
)

func main() {
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(path string) error {
	var declared []module.Module
	for _, m := range modules.BuiltIn() {
		declared = append(declared, m.Module)
	}
	catalog, err := module.Build(jsonschema.New(), declared...)
	if err != nil {
		return fmt.Errorf("modules: %w", err)
	}
	document, err := httpapi.Document(catalog)
	if err != nil {
		return err
	}
	return os.WriteFile(path, document, 0o644) //nolint:gosec // a source file
}
