"""Offers the interfaces of four other tools (see each module) on top of torchglass, so that their users can switch."""
