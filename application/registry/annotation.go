package registry

import (
	"encoding/json"
	"reflect"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// equalJSON compares JSON documents regardless of the order of members. Numbers are equal if
// they are written alike.
func equalJSON(a, b json.RawMessage) bool {
	x, errX := jsondoc.Decode(a)
	y, errY := jsondoc.Decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}
