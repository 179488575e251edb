// Package modules lists the business modules that come with Backbone. It is the one place
// that names them all; a program with further modules appends its own to BuiltIn and
// hands the list to app.Main.
package modules

import (
	"github.com/erpbackbone/backbone/adapters/plugin"
	ap "github.com/erpbackbone/backbone/modules/ap/adapters/plugin"
	gl "github.com/erpbackbone/backbone/modules/gl/adapters/plugin"
)

// BuiltIn makes the modules that come with Backbone.
func BuiltIn() []plugin.Module {
	return []plugin.Module{gl.New(), ap.New()}
}
