// Command backbone is the event backbone of an ERP: server, tools and the
// embedded default in one binary.
package main

import (
	"os"

	"github.com/erpbackbone/backbone/cmd/cli"
)

func main() { os.Exit(cli.Run(os.Args[1:])) }
