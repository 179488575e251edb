package money

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// Locate finds the first number of a JSON document that is not written as an amount
// may be, and gives its JSON pointer; "" if there is none. A decoder that met such a
// number knows what is wrong with it and not where it stands.
func Locate(document []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	pointer, _ := locate(decoder, "")
	return pointer
}

// locate reads one value. ok is false at the end of the document or after a find.
func locate(decoder *json.Decoder, path string) (found string, ok bool) {
	token, err := decoder.Token()
	if err != nil {
		return "", false
	}
	switch value := token.(type) {
	case json.Number:
		if _, err := ParseNumber(value.String()); err != nil {
			return path, false
		}
	case json.Delim:
		for i := 0; decoder.More(); i++ {
			name := strconv.Itoa(i)
			if value == '{' {
				key, err := decoder.Token()
				if err != nil {
					return "", false
				}
				name, _ = key.(string)
			}
			if found, ok := locate(decoder, path+"/"+jsondoc.EscapeToken(name)); !ok {
				return found, false
			}
		}
		if _, err := decoder.Token(); err != nil {
			return "", false
		}
	}
	return "", true
}
