package module

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/erpbackbone/backbone/domain/shredding"
)

// MaxFileBytes bounds a file that a module builds.
const MaxFileBytes = 32 << 20

// File is a declared document that is built from the state of the log whenever it is asked for,
// such as the bank file of a payment run. It is served under /api/<module>/<name>, and is neither
// stored nor cached.
type File struct {
	// Type names the file for its policy as an intent's type does: "ap.payment_file". The rule
	// submit decides by role before anything is read, the rule decision on the facts of the
	// built file.
	Type        string
	Name        string // "payment-runs/{run_id}/file"
	Description string
	MediaType   string  // "application/xml"
	Params      []Param // those of the path
	Policy      string  // Rego package, as of an IntentType
	// Opens lists the classes of personal data that Build reads in clear. The caller must read
	// them too: file.forbidden. What was opened is recorded as disclosed before the file leaves.
	Opens []shredding.Class
	// Build makes the file. in.Payload is an object of the parameters. Streams are read as of the
	// newest committed event, one after the other: nothing tests afterwards that none has
	// changed since, so a file whose content must be of one moment compares it with an event.
	Build func(ctx context.Context, in Input, s State) (BuiltFile, error)
	// Command names the command that saves the file, backbone <module> <command>; its arguments
	// are the parameters.
	Command string
	Example string // arguments of the command, for its help
}

// BuiltFile is the content of a file.
type BuiltFile struct {
	Name    string // proposed to the caller, without folders: letters, digits, dots, dashes and underscores
	Content []byte
	Facts   any // input of the policy, as Plan.Facts
}

// FileOf makes the Build of a File from a function that takes the decoded parameters.
func FileOf[P any](build func(ctx context.Context, in Input, s State, params P) (BuiltFile, error)) func(context.Context, Input, State) (BuiltFile, error) {
	return func(ctx context.Context, in Input, s State) (BuiltFile, error) {
		var params P
		if err := json.Unmarshal(in.Payload, &params); err != nil {
			return BuiltFile{}, err
		}
		return build(ctx, in, s, params)
	}
}

// File declares a file, whose type begins with the module's name.
func (r *Registrar) File(f File) {
	path := ReadModelPath(r.module, f.Name)
	if _, dup := r.catalog.files[path]; dup {
		r.fail("file %s is declared twice", path)
	}
	if _, dup := r.catalog.readModels[path]; dup {
		r.fail("file %s has the path of a read model", path)
	}
	if f.Type == "" || f.MediaType == "" || f.Policy == "" || f.Build == nil || f.Command == "" {
		r.fail("file %s lacks Type, MediaType, Policy, Build or Command", path)
	}
	if i := slices.IndexFunc(f.Params, func(p Param) bool { return !p.InPath || p.Type != ParamString }); i >= 0 {
		r.fail("file %s: parameter %s is no text in its path", path, f.Params[i].Name)
	}
	for _, class := range f.Opens {
		if !class.Valid() {
			r.fail("file %s opens %q, which is no class of personal data", path, class)
		}
	}
	r.catalog.files[path] = f
}

// Files lists the declared files by path, "ap/payment-runs/{run_id}/file".
func (c *Catalog) Files() map[string]File { return c.files }
