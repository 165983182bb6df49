package main

import (
	"github.com/spf13/cobra"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

func specDeleteCommand(c *cli) *cobra.Command {
	return removal{
		use: "delete SPEC...", short: "Delete specifications with their offers",
		long: `Deletes specifications with their offers. One that a job which has not ended
asks for cannot be deleted.`,
		one: "specification", some: "specifications", member: "resourceSpecIds", done: "deleted",
		remove: func(cmd *cobra.Command, a *api, id string) error {
			_, err := a.registry.DeleteSpec(cmd.Context(), &registryv1.DeleteSpecRequest{ResourceSpecId: id})
			return err
		},
	}.command(c)
}

func imageDeleteCommand(c *cli) *cobra.Command {
	return removal{
		use: "delete IMAGE...", short: "Delete images from the register",
		long: `Deletes images from the register; their data at the centers stays. One that a
job which has not ended asks for cannot be deleted.`,
		one: "image", some: "images", member: "imageIds", done: "deleted",
		remove: func(cmd *cobra.Command, a *api, id string) error {
			_, err := a.registry.DeleteImage(cmd.Context(), &registryv1.DeleteImageRequest{ImageId: id})
			return err
		},
	}.command(c)
}

func centerDeleteCommand(c *cli) *cobra.Command {
	return removal{
		use: "delete CENTER...", short: "Delete centers with their offers",
		long: `Deletes centers with their offers and their place in images; jobs and usage
records stay. A center where replicas run or wait cannot be deleted: drain it
and wait for them, stop them, or, if it never comes back, write them off with
"yunhe job write-off". A center whose gateway is still a member comes back with
its next word: remove the gateway first, with "yunhe gateway remove".`,
		one: "center", some: "centers", member: "aiCenterIds", done: "deleted",
		remove: func(cmd *cobra.Command, a *api, id string) error {
			_, err := a.registry.DeleteCenter(cmd.Context(), &registryv1.DeleteCenterRequest{AiCenterId: id})
			return err
		},
	}.command(c)
}
