// Package app is the program as a library. A business with modules of its own writes a
// main function of one call, in a repository of its own:
//
//	func main() { app.Main(append(modules.BuiltIn(), asset.New())...) }
//
// and has a server, tools and `backbone dev` that know its modules like the built-in ones.
package app

import (
	"os"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/cmd/cli"
)

// Main carries out the command line of the process with the modules and ends the process.
// A module comes after those whose event types it emits or reads.
func Main(modules ...plugin.Module) { os.Exit(cli.Run(os.Args[1:], modules)) }
