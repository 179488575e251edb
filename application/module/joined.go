package module

import "errors"

// Joined is one module whose declarations several packages make. It has the name of the first.
type Joined []Module

var _ Module = Joined{}

// Name implements Module.
func (j Joined) Name() string { return j[0].Name() }

// Register implements Module.
func (j Joined) Register(r *Registrar) error {
	var failures []error
	for _, m := range j {
		failures = append(failures, m.Register(r))
	}
	return errors.Join(failures...)
}
