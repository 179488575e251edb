package module

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
)

// Figure declares the way from a figure that read models print to the events behind it, and
// back. A figure is named <module>:<name>:<value>, as gl:account:2000.
type Figure struct {
	Name        string // "account"
	Description string
	// ReadModel is the path of the read model whose rows make up the figure. They have the column
	// event_id. Param takes the value, Params are given besides.
	ReadModel string
	Param     string
	Params    map[string]string
	// EventTypes are the types of the events behind such figures. Values lists those that an
	// event is behind, from its data as stored; data is nil after the payload was deleted.
	EventTypes []string
	Values     func(e event.Recorded, data json.RawMessage) []string
}

// Figure declares a figure of the module.
func (r *Registrar) Figure(f Figure) {
	name := r.module + ":" + f.Name
	if _, dup := r.catalog.figures[name]; dup || f.Name == "" || f.Param == "" || f.Values == nil {
		r.fail("figure %s is declared twice, or lacks a name, a parameter or values", name)
	}
	r.catalog.figures[name] = f
}

// Figures lists the figures by module and name, "gl:account".
func (c *Catalog) Figures() map[string]Figure { return c.figures }
