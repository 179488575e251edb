// Package allfields fills structs, so that a test of all fields notices a new one.
package allfields

import (
	"reflect"
	"time"
)

// Fill gives every exported field below v, a pointer to a struct, a value that is not zero.
// Bytes are a JSON document.
func Fill(v any) { fill(reflect.ValueOf(v).Elem()) }

func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 3, 2, 1, 2, 3, 456_789_000, time.UTC)))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case v.Kind() == reflect.String:
		v.SetString("text")
	case v.CanInt():
		v.SetInt(7)
	case v.CanUint():
		v.SetUint(7)
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case v.Type().ConvertibleTo(reflect.TypeFor[[]byte]()):
		v.Set(reflect.ValueOf([]byte(`{"a":"b"}`)).Convert(v.Type()))
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case v.Kind() == reflect.Map:
		key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(element)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, element)
	}
}
