// Command backbone is Backbone with the built-in modules and skeleton.
package main

import (
	"github.com/erpbackbone/backbone/cmd/app"
	"github.com/erpbackbone/backbone/cmd/scaffold/skeleton/plugin"
	"github.com/erpbackbone/backbone/modules"
)

func main() { app.Main(append(modules.BuiltIn(), plugin.New())...) }
