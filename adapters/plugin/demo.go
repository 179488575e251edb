package plugin

import (
	"context"
	"io"

	"github.com/erpbackbone/backbone/configs/demo"
)

// Demo is what a module shows in `backbone dev`. Each part may be nil.
type Demo struct {
	// Books are the stages that set up the books of a legal entity. The stages of a module
	// run after those of the modules before it.
	Books func(e demo.Entity) ([]demo.Stage, error)
	// Sample shows the module at work, once per data folder: `backbone dev --sample`.
	Sample func(ctx context.Context, s Session) error
	// Hints are commands to try next.
	Hints func(s Session) []string
}

// Session is a running `backbone dev`, as the demonstration of a module sees it.
type Session struct {
	Program     string            // path of the program, for commands to try
	DataDir     string            // folder of the demonstration
	Server      string            // base URL
	LegalEntity string            // whose books take the samples
	Tokens      map[string]string // by role
	SampleDone  bool              // the sample is in the books already
	Out         io.Writer
	// Trace prints where an event or journal comes from, like `backbone trace`.
	Trace func(ctx context.Context, id string) error
}
