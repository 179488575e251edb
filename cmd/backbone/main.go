// Command backbone is the event backbone of an ERP: server, tools and the
// embedded default in one binary, with the built-in modules.
package main

import (
	"github.com/erpbackbone/backbone/cmd/app"
	"github.com/erpbackbone/backbone/modules"
)

func main() { app.Main(modules.BuiltIn()...) }
